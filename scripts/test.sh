#!/usr/bin/env bash
# Runs test stages:
#   scripts/test.sh [-n] LEVEL STAGE...
# The level is core (make test), rest (what make test-all runs besides) or all. The
# stages are static, unit, race, sim and e2e. scripts/levels.txt divides the packages
# and tests of each stage between core and rest. -n prints what would run, and runs
# nothing: lines of STAGE PACKAGE, with -skip or -run and the tests that are left out
# or run alone.
#
# The output of all stages goes through internal/test/summary, which prints one summary
# and lists every skip. With RDSD_TEST_FULL=1 a skip that is not named in
# scripts/expected-skips.txt is a failure. PKGS limits unit and race to some packages:
# PKGS=./conn/... make race
set -uo pipefail
. "$(dirname "$0")/lib.sh"
need_go
cd "$ROOT" || exit 1
export CGO_ENABLED=${CGO_ENABLED:-0}

# Packages whose tests run real processes have a stage of their own.
E2E='/test/(e2e|ledger|conformance|bench)(/|$)'

# modules lists the packages of MODULES.
modules() {
	local module
	for module in "${MODULES[@]}"; do go -C "$module" list -find ./...; done
}

# packages STAGE lists the stage's packages by their paths in the module.
packages() {
	case $1 in
	static) go list ./test/tidy ;;
	unit | race) { go list ${PKGS:-./...} && { [ -n "${PKGS:-}" ] || modules; }; } | grep -Ev "$E2E|/test/tidy\$" ;;
	sim) go list ./test/sim ./conn ./conn/tcp ./internal/engine ./internal/daemon ;;
	e2e) go list ./test/e2e/... ./test/ledger/... ./test/conformance && go -C test/bench list ./... ;;
	esac | sed "s,^$(go list -m)/,,"
}

# plan STAGE prints what the level runs of a stage: PACKAGE [-skip|-run TESTS].
plan() {
	local rules pkg belongs stage pattern test whole tests
	rules=$(sed 's/#.*//' scripts/levels.txt)
	packages "$1" | while read -r pkg; do
		whole='' tests=''
		while read -r belongs stage pattern test; do
			# shellcheck disable=SC2053 # the file has patterns
			[[ $stage == "$1" && $pkg == $pattern ]] || continue
			[ -n "$test" ] || whole=${whole:-$belongs}
			for test in ${test//,/ }; do tests+="${tests:+|}^${test//\//\$/^}\$"; done
		done <<<"$rules"
		case $level in
		all) echo "$pkg" ;;
		"${whole:-core}") echo "$pkg${tests:+ -skip $tests}" ;;
		*) [ -z "$tests" ] || echo "$pkg -run $tests" ;;
		esac
	done
}

# gotest FLAGS... PACKAGES... runs go test, in each module for its packages.
# testsummary counts the failed tests. The line "exit:" tells it of a go command that
# failed without reporting a test.
gotest() {
	local arg module in flags=()
	local -A of=()
	for arg; do
		case $arg in
		./*)
			in=.
			for module in "${MODULES[@]}"; do
				case $arg/ in "./$module/"*) in=$module arg=.${arg#"./$module"} ;; esac
			done
			of[$in]+=" $arg"
			;;
		*) flags+=("$arg") ;;
		esac
	done
	for module in . "${MODULES[@]}"; do
		[ -z "${of[$module]:-}" ] || go -C "$module" test -json -timeout 20m "${flags[@]}" ${of[$module]} || echo "exit: go test"
	done
}

# planned STAGE FLAGS... runs what the plan says: the packages with all their tests
# or without some, then some tests of packages.
planned() {
	local plan pkg how tests skip='' only='' most=() some=()
	plan=$(plan "$1") || echo "fail: the packages of $1 cannot be listed"
	shift
	[ -n "$plan" ] || return 0
	while read -r pkg how tests; do
		case $how in
		-run) some+=("./$pkg") only+="${only:+|}$tests" ;;
		*) most+=("./$pkg") skip+="${tests:+${skip:+|}$tests}" ;;
		esac
	done <<<"$plan"
	[ ${#most[@]} -eq 0 ] || gotest "$@" ${skip:+-skip "$skip"} "${most[@]}"
	[ ${#some[@]} -eq 0 ] || gotest "$@" -run "$only" "${some[@]}"
}

static_core() {
	local bad
	bad=$(gofmt -l $(git ls-files -co --exclude-standard '*.go' 2>/dev/null || find . -name '*.go'))
	[ -z "$bad" ] || echo "fail: gofmt -l:" $bad
}

static_rest() {
	local module
	for module in . "${MODULES[@]}"; do
		go -C $module build -buildvcs=false -o /dev/null ./... || echo "fail: go build in $module"
		go -C $module vet ./... || echo "fail: go vet in $module"
		GOARCH=arm64 go -C $module vet ./... || echo "fail: go vet for arm64 in $module"
	done
	go vet -tags failpoints ./internal/... || echo "fail: go vet with failpoints"
	go vet -tags upcalls ./conn/... || echo "fail: go vet with upcalls"
	go run ./test/mutant/run -exec go vet -tags leaveout ./internal/... ./conn/... ./rdmaop ./rds ./verbs/... || echo "fail: go vet with broken variants"
	if need_ibv; then
		CGO_ENABLED=1 go vet -tags ibv ./verbs/ibv ./cmd/rdsd || echo "fail: go vet with ibv"
	else
		echo "verbs/ibv was not checked: that needs a C compiler, libibverbs-dev and librdmacm-dev"
	fi
	# test/bench/peers is a module of its own, so its go.mod falls behind when a version is
	# raised here. make bench would then run without these peers.
	(cd test/bench/peers && go list -deps . >/dev/null) || echo "fail: test/bench/peers: cd test/bench/peers && go mod tidy"
	scripts/lint.sh || echo "fail: scripts/lint.sh"
}

stage_static() {
	[ "$level" = rest ] || static_core
	[ "$level" = core ] || static_rest
	planned static -count=1
}

stage_unit() {
	planned unit -shuffle=on
	[ "$level" = rest ] || gotest -count=1 -tags failpoints ./internal/failpoint
}

stage_race() {
	if ! need_cc; then
		echo "skip: the race detector needs cgo and a C compiler: apt-get install -y --no-install-recommends gcc libc6-dev"
		return
	fi
	# The programs that tests build are the unit stage's: with cgo they would all be
	# compiled once more.
	CGO_ENABLED=1 planned race -race -short -shuffle=on -exec 'env CGO_ENABLED=0'
}

# stage_sim runs with the up-calls checked. It is not divided: levels.txt has it in rest.
stage_sim() {
	[ -n "$(plan sim)" ] || return 0
	RDSD_SIM_PAIRS=$run/pairs RDSD_SIM_SEEDS=${SEEDS:-50} gotest -count=1 -timeout 2h -tags upcalls -run Sim ./test/sim
	[ ! -f "$run/pairs" ] || cat "$run/pairs"
	gotest -count=1 -tags upcalls ./conn ./conn/tcp ./internal/engine ./internal/daemon
}

stage_e2e() { planned e2e -count=1; }

dry=
if [ "${1:-}" = -n ]; then
	dry=1
	shift
fi
level=${1:-}
shift
case $level in core | rest | all) ;; *) die "no level ${level:-is named} (core, rest, all)" ;; esac
for stage in "$@"; do
	declare -F "stage_$stage" >/dev/null || die "no test stage $stage (static, unit, race, sim, e2e)"
done
if [ -n "$dry" ]; then
	for stage in "$@"; do plan "$stage" | sed "s/^/$stage /"; done
	exit
fi
need_tools
run=$(mktemp -d) || exit 1
trap 'rm -rf "$run"' EXIT
go build -buildvcs=false -o "$run/testsummary" ./internal/test/summary || exit 1
for stage in "$@"; do
	echo "== $stage"
	"stage_$stage" 2>&1
done | "$run/testsummary" -expected scripts/expected-skips.txt
