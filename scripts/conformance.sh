#!/usr/bin/env bash
# Prints two lists:
# - RC semantics: for each statement and provider, whether its test passes, a
#   listed deviation is asserted instead, or the statement does not apply and why.
# - RDS: for each statement, whether its check against real daemons passes, or why
#   it has no check here ("later").
# The first list is the group RC, the second has the groups A to M. GROUP="RC A E"
# prints only the groups named.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
export CGO_ENABLED=${CGO_ENABLED:-0}
read -ra groups <<<"${GROUP:-RC A B C D E F G H I J K L M}"
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
status=0

# show_failure FILE prints why go test failed. FILE has its output.
show_failure() {
	grep -vE '^ +statement_test\.go:|^(ok|PASS|=== )' "$1" >&2 || cat "$1" >&2
}

rc_list() {
	echo "== RC semantics"
	VERBS_CONFORMANCE=$run/lines go test -count=1 -timeout 5m -run 'TestConformance$' ./verbs/soft ./verbs/sim >"$run/log" 2>&1 || status=1
	# A provider has several runs: with and without CRC, two seeds. The worst one counts.
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
}

# rds_list GROUPS prints a line for each statement: number, k (as the kernel does it)
# or r (rdsd's own rule), how it is proven, verdict, text.
rds_list() {
	local failed=0
	echo "== RDS, groups $*"
	: >"$run/rds"
	RDS_CONFORMANCE=$run/rds go test -count=1 -timeout 5m -run "TestComplete|TestStatements/^($(IFS='|'; echo "$*"))\$" ./test/conformance \
		>"$run/log" 2>&1 || failed=1
	sort -n "$run/rds" | awk -F'\t' '
	{ printf "%-4s %-2s %-6s %-5s %s%s\n", $1, $2, $4, $3, $5, ($6 == "" ? "" : " [" $6 "]"); count[$3]++ }
	END { print ""; for (k in count) print k ": " count[k] | "sort" }'
	if [ $failed -ne 0 ]; then
		status=1
		show_failure "$run/log"
	fi
}

rds=()
for g in "${groups[@]}"; do
	case $g in
	RC) rc_list ;;
	[A-M]) rds+=("$g") ;;
	*) die "no group $g (RC, A to M)" ;;
	esac
done
[ ${#rds[@]} -eq 0 ] || rds_list "${rds[@]}"
exit $status
