#!/usr/bin/env bash
# Builds librdsd-fi.so, the provider of libfabric, with the compiler CC (cc), for its machine:
#   scripts/fabric.sh FOLDER
# FABRIC_CFLAGS and FABRIC_LDFLAGS name a libfabric in another place than the system's. The same input gives the same bytes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
[ $# -eq 1 ] || die "usage: fabric.sh FOLDER"
out=$1 cc=${CC:-cc} ld=${FABRIC_LDFLAGS:-}
(unset CC; need_fabric) || die "librdsd-fi.so was not built: it needs a C compiler, make and libfabric's headers and library, 1.17 or later (a libfabric of your own: FABRIC_CFLAGS=-I... FABRIC_LDFLAGS=-L...)"
machine=$($cc -dumpmachine) || die "$cc -dumpmachine does not say for which machine it compiles: set CC to a C compiler"
mkdir -p "$out"

# Debian's libfabric-dev has the library for this machine alone. To link for another machine, names and versions are all that
# is needed of it: they are the same on all.
if [ "$machine" != "$(cc -dumpmachine)" ]; then
	rm -rf "$out/stub"
	mkdir "$out/stub"
	nm -D --defined-only --with-symbol-versions "$(cc -print-file-name=libfabric.so)" | sed -n 's/.* T \(.*\)@@\(.*\)/\2 \1/p' | sort >"$out/stub/names"
	[ -s "$out/stub/names" ] || die "librdsd-fi.so was not built for $machine: nm finds no functions in $(cc -print-file-name=libfabric.so)"
	awk '{ print "void " $2 "(void);\nvoid " $2 "(void) {}" }' "$out/stub/names" >"$out/stub/stub.c"
	awk '$1 != last { if (last) print "};"; print $1 " {"; last = $1 } { print $2 ";" } END { print "};" }' "$out/stub/names" >"$out/stub/stub.map"
	$cc -shared -nostdlib -fPIC -fno-builtin -Wl,-soname,libfabric.so.1 -Wl,--version-script="$out/stub/stub.map" -o "$out/stub/libfabric.so" "$out/stub/stub.c"
	ld="-L$out/stub $ld"
fi
make -s -C "$ROOT/fabric" OUT="$out" CC="$cc" ${AR:+AR="$AR"} CFLAGS="${CFLAGS:--O2 -g}" FABRIC_CFLAGS="${FABRIC_CFLAGS:-}" FABRIC_LDFLAGS="$ld"
