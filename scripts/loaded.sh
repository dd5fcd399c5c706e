#!/usr/bin/env bash
# Runs the tests RUNS times (default 5) beside a busy loop on every CPU, and prints
# in how many runs each test failed. So a test that depends on timing shows up.
# LOAD=n starts n loops instead of one for each CPU. PKGS names the packages, and
# TESTFLAGS adds flags of go test:
#   PKGS=./rdstest TESTFLAGS='-run Idle' scripts/loaded.sh
set -uo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT" || exit 1
export CGO_ENABLED=${CGO_ENABLED:-0}

need_tools
run=$(mktemp -d) || exit 1
loops=()
end() {
	[ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null
	rm -rf "$run"
}
trap end EXIT
trap 'exit 130' INT TERM
go build -buildvcs=false -o "$run/testsummary" ./internal/test/summary || exit 1
go vet ${PKGS:-./...} || exit 1 # compiles everything before the load starts

for ((i = 0; i < ${LOAD:-$(nproc)}; i++)); do
	while :; do :; done &
	loops+=($!)
done
for ((i = 1; i <= ${RUNS:-5}; i++)); do
	echo "== run $i"
	go test -json -count=1 -shuffle=on -timeout 30m ${TESTFLAGS:-} ${PKGS:-./...} 2>&1 || echo "exit: go test"
	[ -n "${PKGS:-}" ] || for module in "${MODULES[@]}"; do
		go -C "$module" test -json -count=1 -shuffle=on -timeout 30m ${TESTFLAGS:-} ./... 2>&1 || echo "exit: go test"
	done
done | "$run/testsummary" -runs -expected scripts/expected-skips.txt
