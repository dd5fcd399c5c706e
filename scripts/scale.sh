#!/usr/bin/env bash
# Measures what I/O threads bring on a machine with many CPUs, in less than ten minutes: for each of THREADS (default
# 0 1 2 4 auto) RDMA writes and reads of 1 MiB by one socket and by four, without TLS and with it, and 64 B round trips
# beside them. One report for each goes to DIR. Needs bin/rdsd and bin/bench, as `make bench` builds them.
#
#   scripts/scale.sh DIR [THREADS...]
set -euo pipefail
dir=$(realpath -m "${1:?usage: scale.sh DIR [THREADS...]}")
shift
cd "$(dirname "$0")/.."
[ -x bin/bench ] && [ -x bin/rdsd ] || {
	echo "scale.sh: bin/bench or bin/rdsd is missing: make bench" >&2
	exit 1
}
mkdir -p "$dir"
nproc >"$dir/cpus"
[ $# -gt 0 ] || set -- 0 1 2 4 auto
for threads; do
	printf '#!/bin/sh\nexec %q -io-threads %q "$@"\n' "$PWD/bin/rdsd" "$threads" >"$dir/rdsd"
	chmod +x "$dir/rdsd"
	bin/bench -rdsd "$dir/rdsd" -n "${RUNS:-5}" -d 500ms -groups rdma,flows,tls,fair -run '^(rdma-(write|read)-1m|flows-.*|tls-.*|fair-.*)$' >"$dir/threads-$threads.txt"
done
rm "$dir/rdsd"
grep -H -E 'rdma-(write|read)-1m|flows-|tls-write|fair-' "$dir"/threads-*.txt
