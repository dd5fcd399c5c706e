#!/usr/bin/env bash
# Builds the peers' program at the path given, with the libraries that there are. NATS comes as a
# Go module, ZeroMQ as Debian's libzmq, which the script installs if it runs as root. Without a
# library its peers are left out, and the bench says so.
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
CGO_ENABLED=0 go build -buildvcs=false -o "$out" . && { echo "the bench goes without ZeroMQ" >&2; exit 0; }
rm -f "$out"
echo "the bench goes without ZeroMQ and NATS" >&2
