#!/usr/bin/env bash
# Runs the test stages that its arguments name: static, unit, race, sim, e2e. The
# output of all of them goes through internal/testsummary, which prints one summary
# and lists every skip. With RDSD_TEST_FULL=1 a skip that is not named in
# scripts/expected-skips.txt is a failure. PKGS limits unit and race to some
# packages: PKGS=./conn/... make race
set -uo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT" || exit 1
export CGO_ENABLED=${CGO_ENABLED:-0}

# Packages whose tests run real processes have a stage of their own.
E2E='/(e2e|bench|test/conformance)(/|$)'

packages() { go list ${PKGS:-./...} | grep -Ev "$E2E|/internal/tidy\$"; }

# gotest FLAGS... PACKAGES... runs go test. testsummary counts the failed tests. The
# line "exit:" tells it of a go command that failed without reporting a test.
gotest() {
	go test -json -timeout 20m "$@" || echo "exit: go test"
}

stage_static() {
	local bad
	bad=$(gofmt -l $(git ls-files -co --exclude-standard '*.go' 2>/dev/null || find . -name '*.go'))
	[ -z "$bad" ] || echo "fail: gofmt -l:" $bad
	go build -buildvcs=false -o /dev/null ./... || echo "fail: go build"
	go vet ./... || echo "fail: go vet"
	GOARCH=arm64 go vet ./... || echo "fail: go vet for arm64"
	go vet -tags failpoints ./internal/... || echo "fail: go vet with failpoints"
	go vet -tags upcalls ./conn || echo "fail: go vet with upcalls"
	go vet -tags mutant ./internal/... ./conn ./rdmaop ./rds ./verbs/soft || echo "fail: go vet with mutant"
	if need_ibv; then
		CGO_ENABLED=1 go vet -tags ibv ./verbs/ibv ./cmd/rdsd || echo "fail: go vet with ibv"
	else
		echo "verbs/ibv was not checked: that needs a C compiler, libibverbs-dev and librdmacm-dev"
	fi
	# bench/peers is a module of its own, so its go.mod falls behind when a version
	# is raised here. make bench would then run without these peers.
	(cd bench/peers && go list -deps . >/dev/null) || echo "fail: bench/peers: cd bench/peers && go mod tidy"
	scripts/lint.sh || echo "fail: golangci-lint"
	if [ -d internal/tidy ]; then gotest -count=1 ./internal/tidy; fi
}

stage_unit() {
	gotest -shuffle=on $(packages)
	gotest -count=1 -tags failpoints ./internal/failpoint
}

stage_race() {
	if ! need_cc; then
		echo "skip: the race detector needs cgo and a C compiler: apt-get install -y --no-install-recommends gcc libc6-dev"
		return
	fi
	CGO_ENABLED=1 gotest -race -short -shuffle=on $(packages)
}

stage_sim() {
	if ! [ -d internal/sim ]; then echo "skip: no simulator in this tree"; return; fi
	RDSD_SIM_PAIRS=$run/pairs RDSD_SIM_SEEDS=${SEEDS:-50} gotest -count=1 -timeout 2h -tags upcalls -run Sim ./internal/sim
	[ ! -f "$run/pairs" ] || cat "$run/pairs"
	gotest -count=1 -tags upcalls ./conn ./internal/engine ./internal/daemon
}

stage_e2e() {
	if ! [ -d e2e ]; then echo "skip: no end-to-end tests in this tree"; return; fi
	gotest -count=1 ./e2e/... ./bench/... ./test/conformance
}

need_tools
run=$(mktemp -d) || exit 1
trap 'rm -rf "$run"' EXIT
go build -buildvcs=false -o "$run/testsummary" ./internal/testsummary || exit 1
for stage in "$@"; do
	declare -F "stage_$stage" >/dev/null || die "no test stage $stage (static, unit, race, sim, e2e)"
done
for stage in "$@"; do
	echo "== $stage"
	"stage_$stage" 2>&1
done | "$run/testsummary" -expected scripts/expected-skips.txt
