#!/usr/bin/env bash
# Builds bench-peers as PROGRAM with the libraries that can be had. NATS is a Go module. ZeroMQ is
# Debian's libzmq, which this script installs if it runs as root. The program lacks the roles of a
# library that cannot be had, and the bench then says that these peers are not available. Without
# any library the script removes PROGRAM.
set -uo pipefail
out=$(realpath -m "${1:?usage: build.sh PROGRAM}")
cd "$(dirname "$0")" || exit 1
. ../../scripts/lib.sh
need_go

have_zmq() { echo '#include <zmq.h>' | ${CC:-cc} -x c -fsyntax-only - 2>/dev/null; }
have_zmq || need_packages gcc libc6-dev libzmq3-dev || true

if have_zmq; then
	CGO_ENABLED=1 go build -buildvcs=false -tags zmq -o "$out" . && exit 0
fi
CGO_ENABLED=0 go build -buildvcs=false -o "$out" . && { echo "bench-peers: built without ZeroMQ, so the bench leaves it out" >&2; exit 0; }
rm -f "$out"
echo "bench-peers: not built, so the bench leaves out ZeroMQ and NATS" >&2
