#!/usr/bin/env bash
# Prints for each statement of RC semantics and each provider whether its test
# passes, a listed deviation is asserted instead, or it does not apply and why.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
export CGO_ENABLED=${CGO_ENABLED:-0}
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
status=0
VERBS_CONFORMANCE=$run/lines go test -count=1 -timeout 5m -run 'TestConformance$' ./verbs/soft ./verbs/sim >"$run/log" 2>&1 || status=1
# Several runs of a provider (with and without CRC, two seeds): the worst counts.
awk -F'\t' '
	BEGIN { rank["n/a"] = 0; rank["pass"] = 1; rank["deviation"] = 2; rank["FAIL"] = 3 }
	{ k = $2 "\t" $1 }
	!(k in verdict) { order[++n] = k }
	!(k in verdict) || rank[$3] > rank[verdict[k]] { verdict[k] = $3; rest[k] = $4 ($5 == "" ? "" : ": " $5) }
	END {
		for (i = 1; i <= n; i++) {
			split(order[i], p, "\t")
			printf "%d\t%s\t%s\t%s\t%s\n", substr(p[1], 2), p[1], p[2], verdict[order[i]], rest[order[i]]
		}
	}' "$run/lines" | sort -t"$(printf '\t')" -k1,1n -k3,3 | awk -F'\t' '
	{ printf "%-5s %-5s %-10s %s\n", $2, $3, $4, $5; count[$3 " " $4]++ }
	END { print ""; for (k in count) print k ": " count[k] | "sort" }'
if [ $status -ne 0 ]; then
	grep -E '^ *--- FAIL|^FAIL|^panic' "$run/log" >&2 || cat "$run/log" >&2
fi
exit $status
