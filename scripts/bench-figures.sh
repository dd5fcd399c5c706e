#!/usr/bin/env bash
# Measures the figures of docs/performance.md in one run and writes the report to DIR/report.md: rates, round trips,
# CPU and RDMA with the peers in turn, then the pauses of planned restarts. Needs `make bench-peers` for the peers.
# Takes about ten minutes.
#
#   scripts/bench-figures.sh DIR [ROUNDS [SECONDS]]
set -euo pipefail
dir=$(realpath -m "${1:?usage: bench-figures.sh DIR [ROUNDS [SECONDS]]}")
rounds=${2:-9}
seconds=${3:-0.5}
cd "$(dirname "$0")/.."
. scripts/lib.sh
need_go

cases='^((rds|embedded|local|tcp|zmq|nats|aeron|floor|model)-(rtt|rate)|(rds|model)-rate-1|(rdma-write|rdma-read|tcp-bulk|floor-bulk)-1m|(rpc|grpc|natsreq)-(rtt|rate))$'
load() { uptime | sed 's/.*load average: //'; }

mkdir -p "$dir"
before=$(load)
bin/bench -n "$rounds" -d "${seconds}s" -groups rtt,rate,rdma,rpc,local -run "$cases" -o json >"$dir/report.json"
between=$(load)
go test -count=1 -v -timeout 10m ./e2e/ledger -run '^TestPause$' -ledger.measure >"$dir/pause.log"
after=$(load)

# pauses prints a row for each of TestPause's two parts.
pauses() {
	sed -nE "s/.*load (false|true): ([0-9]+) restarts; the ping-pong's pause p50 ([^,]*), p99 ([^,]*), max ([^;]*); what daemons say p50 ([^,]*), p99 ([^,]*), max [^;]*; a second without a restart ([^;]*);.*/| \1 | \2 | \3 | \4 | \5 | \6 | \7 | \8 |/p" "$dir/pause.log" |
		sed -E 's/^\| false/| nothing/; s/^\| true/| streams and operations/' |
		awk -F' \\| ' -v OFS=' | ' '{ for (i = 3; i <= NF; i++) $i = ms($i); print }
			function ms(d,   n) { sub(/ \|$/, "", d); tail = i == NF ? " |" : ""
				if (d !~ /^[0-9.]+(µs|ms|s)$/) return d tail
				n = d + 0; if (d ~ /µs$/) n /= 1000; else if (d !~ /ms$/) n *= 1000
				return sprintf(n < 10 ? "%.1f" : "%.0f", n) tail }'
}

{
	echo "# Figures of one run"
	echo
	bin/bench -read "$dir/report.json" -o summary
	echo "| Pause of a planned restart, beside it | restarts | p50, ms | p99, ms | longest, ms | the daemons' own, p50 | p99 | a second without a restart, ms |"
	echo "|---|---|---|---|---|---|---|---|"
	pauses
	echo
	echo "Load of the machine (1, 5 and 15 minutes): before $before; after the first part $between; at the end $after."
	echo
	echo '## All cases'
	echo
	echo '```'
	bin/bench -read "$dir/report.json" -o table
	echo '```'
} >"$dir/report.md"
echo "wrote $dir/report.md" >&2
