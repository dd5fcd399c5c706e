#!/usr/bin/env bash
# Builds bench-peers as PROGRAM with the libraries that can be had. NATS and gRPC are Go modules. ZeroMQ,
# libfabric and UCX are Debian's, which this script installs if it runs as root. Aeron's C driver is in no package:
# AERON=DIR names its sources or an installed one, and what is built of sources stays in aeron beside
# PROGRAM. The program lacks the roles of a library that cannot be had, and the bench then says that
# these peers are not available. Without any library the script removes PROGRAM.
set -uo pipefail
out=$(realpath -m "${1:?usage: build.sh PROGRAM}")
kept=$(dirname "$out")/aeron
aeron=$(realpath -m "${AERON:-$kept}")
cd "$(dirname "$0")" || exit 1
. ../../../scripts/lib.sh
need_go

# have reports whether there is the header $1.
have() { echo "#include <$1>" | ${CC:-cc} -x c -fsyntax-only - 2>/dev/null; }

# have_aeron reports whether $1 has an installed driver: headers and a static library.
have_aeron() { [ -e "$1/include/aeron/aeronc.h" ] && [ -e "$1/include/aeronmd/aeronmd.h" ] && [ -e "$1/lib/libaeron_driver_static.a" ]; }

# build_aeron builds the driver of the sources in $1 and installs it in $2. Releases of Aeron ask for
# a newer cmake than they need.
build_aeron() {
	need_packages cmake g++ uuid-dev || return 1
	local tmp
	tmp=$(mktemp -d) || return 1
	cp -r "$1" "$tmp/src" &&
		sed -i -E 's/^(cmake_minimum_required|cmake_policy)\(VERSION [0-9.]+/\1(VERSION 3.25/' "$tmp/src/CMakeLists.txt" &&
		cmake -S "$tmp/src" -B "$tmp/build" -DCMAKE_BUILD_TYPE=Release -DAERON_TESTS=OFF -DAERON_UNIT_TESTS=OFF -DAERON_SYSTEM_TESTS=OFF \
			-DAERON_BUILD_SAMPLES=OFF -DAERON_BUILD_DOCUMENTATION=OFF -DBUILD_AERON_ARCHIVE_API=OFF >"$tmp/log" 2>&1 &&
		cmake --build "$tmp/build" -j2 --target aeron_driver_static >>"$tmp/log" 2>&1 &&
		mkdir -p "$2/include" "$2/lib" &&
		cp -r "$tmp/src/aeron-client/src/main/c" "$2/include/aeron" &&
		cp -r "$tmp/src/aeron-driver/src/main/c" "$2/include/aeronmd" &&
		cp "$tmp/build/lib/libaeron_driver_static.a" "$2/lib/" || { tail -n 5 "$tmp/log" >&2; rm -rf "$tmp"; return 1; }
	rm -rf "$tmp"
}

for h in zmq.h rdma/fabric.h ucp/api/ucp.h; do
	have $h || { need_packages gcc libc6-dev libzmq3-dev libfabric-dev libucx-dev || true; break; }
done
if ! have_aeron "$aeron" && [ -e "$aeron/aeron-driver/src/main/c/aeronmd.h" ]; then
	rm -rf "$kept"
	build_aeron "$aeron" "$kept" && aeron=$kept
fi

tags=()
missing=()
if have zmq.h; then tags+=(zmq); else missing+=(ZeroMQ); fi
if have rdma/fabric.h; then tags+=(ofi); else missing+=(libfabric); fi
if have ucp/api/ucp.h; then tags+=(ucx); else missing+=(UCX); fi
if have_aeron "$aeron"; then
	tags+=(aeron)
	export CGO_CFLAGS="${CGO_CFLAGS:--O2} -I$aeron/include/aeron -I$aeron/include/aeronmd"
	export CGO_LDFLAGS="${CGO_LDFLAGS:-} -L$aeron/lib -laeron_driver_static -lm -ldl -lpthread"
	for lib in bsd uuid; do # the driver uses these where it was built with them
		echo 'int main(void) { return 0; }' | ${CC:-cc} -x c - -o /dev/null -l$lib 2>/dev/null && CGO_LDFLAGS+=" -l$lib"
	done
else
	missing+=('Aeron (AERON=DIR names its sources or an installed driver: docs/performance.md)')
fi

# build builds the program with the tags in $1.
build() { CGO_ENABLED=$([ -n "$1" ] && echo 1 || echo 0) go build -buildvcs=false -tags "$1" -o "$out" .; }

for m in "${missing[@]}"; do echo "bench-peers: built without $m, so the bench leaves it out" >&2; done
build "$(IFS=,; echo "${tags[*]}")" && exit 0
build '' && { echo "bench-peers: built without ${tags[*]}, whose libraries do not link: the bench leaves them out" >&2; exit 0; }
rm -f "$out"
echo "bench-peers: not built, so the bench leaves out all peers that are libraries" >&2
