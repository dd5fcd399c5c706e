#!/usr/bin/env bash
# Checks the models in test/models/*.pml with Spin, one run for each line of test/models/cases.
# A line says whether its property must hold, or fail because the variant is broken.
# MODEL=name checks one model only.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
{ command -v spin && command -v gcc; } >/dev/null || need_packages spin gcc libc6-dev || exit 1

run=$(mktemp -d) || exit 1
trap 'rm -rf "$run"' EXIT
bad=0 n=0

# check MODEL PROPERTY DEFINITION... prints "VERDICT STATES". The verdict is holds,
# fails, or a word for why Spin came to none, such as incomplete.
check() {
	local model=$1 property=$2 flags=() search=()
	shift 2
	rm -rf "$run/v" && mkdir "$run/v" && cd "$run/v" || return
	spin -a "${@/#/-D}" "$ROOT/models/$model.pml" >spin.log 2>&1
	[ -e pan.c ] && ! grep -q '[Ee]rror:' spin.log || { cat spin.log >&2; echo "no-model 0"; return; }
	if [ "$property" = safety ]; then
		flags=(-DSAFETY -DNOCLAIM)
	else
		flags=(-DNFAIR=4) search=(-a -f)
		grep -q "^ltl $property " "$ROOT/models/$model.pml" || { echo "no-property 0"; return; }
		[ "$(grep -c '^ltl ' "$ROOT/models/$model.pml")" = 1 ] || search+=(-N "$property")
	fi
	gcc -O2 -w -DCOLLAPSE -DMEMLIM=4096 "${flags[@]}" -o pan pan.c 2>cc.log || { cat cc.log >&2; echo "no-compile 0"; return; }
	timeout 300 ./pan "${search[@]}" -m2000000 >out 2>&1
	local states
	states=$(awk '/states, stored/ {print $1; exit}' out)
	if grep -q 'errors: 0' out && ! grep -Eq 'max search depth too small|out of memory|not completed' out; then
		echo "holds ${states:-0}"
	elif grep -Eq '^pan:1: (assertion violated|acceptance cycle|invalid end state)' out; then
		echo "fails ${states:-0}"
	else
		tail -n 5 out >&2
		echo "incomplete ${states:-0}"
	fi
}

printf '%-9s %-10s %-33s %10s  %s\n' model property variant states verdict
while read -r model property want defs; do
	case $model in '' | '#'*) continue ;; esac
	[ -z "${MODEL:-}" ] || [ "$MODEL" = "$model" ] || continue
	# shellcheck disable=SC2086
	read -r got states <<<"$(check "$model" "$property" $defs)"
	n=$((n + 1)) verdict=$got
	[ "$got" = "$want" ] || { verdict="$got, WANT $want"; bad=$((bad + 1)); }
	printf '%-9s %-10s %-33s %10s  %s\n' "$model" "$property" "${defs:--}" "$states" "$verdict"
done <"$ROOT/models/cases"
[ "$n" -gt 0 ] || die "no such model: ${MODEL:-}"
echo "$((n - bad)) of $n as they should be"
[ "$bad" -eq 0 ]
