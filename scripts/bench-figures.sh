#!/usr/bin/env bash
# Measures the figures of docs/performance.md in one run and writes its section Today to DIR/today.md, and all cases to
# DIR/report.txt: rates, round trips, CPU and RDMA with the peers in turn, then the pauses of planned restarts. Needs
# bin/rdsd, bin/bench and bin/bench-peers as `make bench` builds them. Takes about ten minutes.
#
#   scripts/bench-figures.sh DIR [ROUNDS [SECONDS]]
set -euo pipefail
dir=$(realpath -m "${1:?usage: bench-figures.sh DIR [ROUNDS [SECONDS]]}")
rounds=${2:-9}
seconds=${3:-0.5}
cd "$(dirname "$0")/.."
. scripts/lib.sh
need_go

cases='^((rds|embedded|local|tcp|zmq|nats|aeron|ofi|ucx|model)-(rtt|rate)|(rds|model)-rate-1|(rdma-write|rdma-read|tcp-bulk|model-bulk)-1m|(rpc|grpc|natsreq)-(rtt|rate))$'
load() { uptime | sed 's/.*load average: //'; }

mkdir -p "$dir"
before=$(load)
bin/bench -n "$rounds" -d "${seconds}s" -groups rtt,rate,rdma,rpc,local -run "$cases" -o json >"$dir/report.json" ||
	echo "bench-figures.sh: the bench says above what failed; the report has the rest" >&2
[ -s "$dir/report.json" ] || exit 1
between=$(load)
go test -count=1 -v -timeout 10m ./test/ledger -run '^TestPause$' -ledger.measure >"$dir/pause.log"
after=$(load)

# pauses prints a row for each of TestPause's two parts: p50, p99 and the longest, in ms.
pauses() {
	sed -nE "s/.*load (false|true): ([0-9]+) restarts; the ping-pong's pause p50 ([^,]*), p99 ([^,]*), max ([^;]*);.*/\1 \2 \3 \4 \5/p" "$dir/pause.log" |
		awk '{ print "| pause of a planned restart " ($1 == "true" ? "beside streams and operations" : "beside nothing else") ", p50 / p99 / longest of " $2 ", ms | " \
				ms($3) " / " ms($4) " / " ms($5) " | – | – | – | – | – | – | – | – |" }
			function ms(d,   n) { n = d + 0; if (d ~ /µs$/) n /= 1000; else if (d !~ /ms$/) n *= 1000
				return sprintf(n < 10 ? "%.1f" : "%.0f", n) }'
}

{
	bin/bench -read "$dir/report.json" -o summary
	pauses
	echo
	echo "Load of the machine (1, 5 and 15 minutes): before $before; after the first part $between; at the end $after."
} >"$dir/today.md"
bin/bench -read "$dir/report.json" -o table | sed 's/ *$//' >"$dir/report.txt"
echo "wrote $dir/today.md and $dir/report.txt" >&2
