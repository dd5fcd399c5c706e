#!/usr/bin/env bash
# Adds the ratios of a report of `make bench BENCHFLAGS='-o json'` to
# docs/performance/history.csv and plots it anew:
#   scripts/bench-history.sh REPORT.json
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
if [ $# -ne 1 ]; then
	sed -n '2,4s/^# \?//p' "$0" >&2
	exit 2
fi
report=$(realpath "$1")
cd "$ROOT"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go -C test/bench build -o "$dir/bench" .
"$dir/bench" -read "$report" -o history >"$dir/rows"
cat "$dir/rows" >>docs/performance/history.csv
"$dir/bench" -history docs/performance/history.csv -plots docs/performance
