#!/usr/bin/env bash
# Builds package rds for Python, with librds.a of RDS_LIBRDS and the compiler CC (cc), for its machine:
#   scripts/python.sh FOLDER VERSION
# FOLDER/lib has the package, FOLDER/dist the wheel. The same input gives the same bytes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
[ $# -eq 2 ] || die "usage: python.sh FOLDER VERSION"
need_python
out=$1 cc=${CC:-cc}
machine=$($cc -dumpmachine) || die "$cc -dumpmachine does not say for which machine it compiles: set CC to a C compiler"
machine=${machine%%-*}
umask 022
rm -rf "$out"
mkdir -p "$out/include/$machine-linux-gnu"
cp -r --no-preserve=mode "$ROOT/python" "$out/tree"
# Debian has pyconfig.h for this machine alone. What the module needs of it is the same on all of 64 bits.
cp -r /usr/include/"$(uname -m)"-linux-gnu/python3.* "$out/include/$machine-linux-gnu/"
export VERSION=$2 RDS_INCLUDE=$ROOT/librds/include PYTHONDONTWRITEBYTECODE=1
cd "$out/tree"
CC="$cc" LDSHARED="$cc -shared" CFLAGS="-O2 -g0 -ffile-prefix-map=$out=. -I$out/include" LDFLAGS=-s /usr/bin/python3 setup.py -q \
	build --build-base "$out/build" --build-lib "$out/lib" egg_info --egg-base "$out" bdist_wheel --plat-name "linux_$machine" --dist-dir "$out/dist" >"$out/log" 2>&1 ||
	{ cat "$out/log" >&2; die "package rds for Python was not built: the compiler's or setuptools' words are above"; }
