#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 30s), one after the other, because
# one run of go test fuzzes only one target.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT"
export CGO_ENABLED=${CGO_ENABLED:-0}
failed=0
while IFS=: read -r file target; do
	pkg=./$(dirname "$file")
	echo "== fuzz $pkg $target (${FUZZTIME:-30s})"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" "$pkg" || failed=1
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's/^\.\///; s/func //' | sort)
exit $failed
