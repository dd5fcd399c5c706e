#!/usr/bin/env bash
# Compares two reports of `make bench BENCHFLAGS='-o json'` with benchstat:
#   scripts/bench-compare.sh OLD.json NEW.json [flags of benchstat]
# One machine's figures differ more from hour to hour than most changes make them
# differ. So judge a change by the ratios to the peers of the same run.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
if [ $# -lt 2 ]; then
	sed -n '2,5s/^# \?//p' "$0" >&2
	exit 2
fi
old=$(realpath "$1") new=$(realpath "$2")
shift 2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go -C "$ROOT/test/bench" build -o "$dir/bench" .
"$dir/bench" -read "$old" -o benchfmt >"$dir/old"
"$dir/bench" -read "$new" -o benchfmt >"$dir/new"
cd "$dir" # outside the module, of which benchstat is no dependency
go run "$benchstat" "$@" -ignore go,kernel,cpu old new
echo
echo "ratios to the peers of the same run (measure, over, median, min, max):"
for which in old new; do
	report=$old
	[ $which = old ] || report=$new
	"$dir/bench" -read "$report" -o history | cut -d, -f4- | sed "s/^/$which  /"
done
