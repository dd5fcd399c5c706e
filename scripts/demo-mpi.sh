#!/usr/bin/env bash
# Shows an MPI job that survives. Two hosts, which are network namespaces, have a daemon each, and Open MPI runs examples/mpi/sums.c
# over libfabric's provider rdsd. Each second the connection between the hosts is reset, and halfway both daemons are replaced:
#   scripts/demo-mpi.sh SECONDS RANKS BESIDE
# BESIDE=1 runs the same job over libfabric's own tcp;ofi_rxm afterwards and cuts the connections between the hosts once.
#
# It needs root, or user namespaces. All processes are in a namespace for processes, so that the kernel ends them with the demo,
# also if the demo is killed. BIN is the folder with what make built.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
me=$(realpath "${BASH_SOURCE[0]}")
bin=$(realpath "${BIN:-$ROOT/bin}")
a=10.78.0.1 b=10.78.0.2

# on_b runs a command at the second host. b_pid is a process there.
on_b() { nsenter -t "$b_pid" -n -u "$@"; }

# host ADDRESS starts the daemon, in the namespace of the caller, and waits for it.
host() {
	local log=$dir/$1.log
	"${@:2}" "$bin/rdsd" -listen "$1" -peers-allow "$a,$b" -tls-mode off >"$log" 2>&1 &
	local daemon=$!
	until grep -q msg=serving "$log"; do
		kill -0 "$daemon" 2>/dev/null || { cat "$log" >&2; die "the daemon of $1 ended: its words are above"; }
		sleep 0.1
	done
}

# hosts makes the two namespaces and starts the daemons.
hosts() {
	local ready
	hostname a
	exec {ready}< <(exec unshare -n -u sh -c 'hostname b; echo $$; exec sleep infinity')
	read -r b_pid <&"$ready" || die "the second network namespace was not made"
	export b_pid
	ip link set lo up
	ip link add veth-a type veth peer name veth-b netns "$b_pid" || die "ip cannot make a pair of virtual interfaces: the kernel needs veth"
	ip addr add $a/24 dev veth-a
	ip link set veth-a up
	on_b ip link set lo up
	on_b ip addr add $b/24 dev veth-b
	on_b ip link set veth-b up
	host $a
	host $b on_b
}

# job LIMIT OPTION... runs the job at both hosts, and ends it after LIMIT seconds.
job() {
	timeout -k 5 "$1" mpirun --oversubscribe -H "$a:$((ranks / 2)),$b:$((ranks / 2))" -np "$ranks" \
		--mca plm_rsh_agent "$me agent" --mca orte_keep_fqdn_hostnames 1 --mca oob_tcp_if_include veth-a,veth-b \
		--mca orte_base_help_aggregate 0 --mca pml cm --mca mtl ofi --mca btl self --mca osc pt2pt "${@:2}" "$dir/sums" "$seconds"
}

# peers prints the sum of one of the daemons' counts of their peers.
peers() {
	{ "$bin/rdsctl" -o json-v2 peers; on_b "$bin/rdsctl" -o json-v2 peers; } | grep -o "\"$1\": *[0-9]*" | awk -F: '{ n += $2 } END { print n + 0 }'
}

# disturb resets the connection each second until the job ends, and halfway replaces both daemons.
disturb() {
	local started=$SECONDS
	while kill -0 "$running" 2>/dev/null; do
		sleep 1
		"$bin/rdsctl" peer reset $b >"$dir/reset" 2>&1 || grep -q 'was ever made' "$dir/reset" || { cat "$dir/reset" >&2; die "the connection was not reset"; }
		if [ "$upgraded" = 0 ] && [ $(((SECONDS - started) * 2)) -ge "$seconds" ]; then
			"$bin/rdsctl" daemon upgrade >"$dir/upgrade" 2>&1 && on_b "$bin/rdsctl" daemon upgrade >>"$dir/upgrade" 2>&1 ||
				{ cat "$dir/upgrade" >&2; die "a daemon was not replaced"; }
			upgraded=1
			echo "  both daemons have been replaced by new processes"
		fi
	done
}

survive() {
	local status=0 upgraded=0 resets
	echo "hosts: a ($a) and b ($b), network namespaces with a daemon each"
	echo "job:   $(mpirun --version | head -n1), $ranks ranks over libfabric's provider rdsd; the connection is reset each second"
	job $((seconds + 300)) --mca mtl_ofi_provider_include rdsd -x FI_PROVIDER_PATH -x RDSD_SOCKET 2>"$dir/err" &
	local running=$!
	disturb
	wait "$running" || status=$?
	resets=$(peers resets)
	[ $status = 0 ] || { cat "$dir"/err "$dir"/*.log >&2; die "the job ended with status $status: its words and the daemons' are above"; }
	[ "$resets" -gt 0 ] && [ $upgraded = 1 ] || die "the job ended before the connection was reset and both daemons replaced: take more seconds (make demo-mpi SECONDS=30)"
	echo "rdsd:  the daemons counted $resets ends of a connection, the job noticed none"
}

# beside runs the job over libfabric's own provider. Its ranks listen at ports that nothing else uses, so that their connections
# are cut, and not those of mpirun.
beside() {
	local status=0 cut='( dport >= 20000 and dport <= 20999 or sport >= 20000 and sport <= 20999 )' error
	unset FI_PROVIDER_PATH
	export FI_TCP_PORT_LOW_RANGE=20000 FI_TCP_PORT_HIGH_RANGE=20999
	job $((seconds + 300)) --mca mtl_ofi_provider_include 'tcp;ofi_rxm' -x FI_TCP_PORT_LOW_RANGE -x FI_TCP_PORT_HIGH_RANGE >"$dir/out" 2>&1 &
	local running=$! n
	until [ "$(ss -Htn state established "$cut" | wc -l)" -gt 0 ] || ! kill -0 $running 2>/dev/null; do sleep 0.2; done
	sleep 2
	n=$(ss -HKtn state established "$cut" 2>/dev/null | wc -l)
	echo "tcp:   the same job over tcp;ofi_rxm; after 2 s the connections between the hosts ($n) are cut once"
	wait "$running" || status=$?
	error=$(grep -om1 'MPI_ERR[A-Z_]*.*' "$dir/out" || tail -n1 "$dir/out")
	[ $status = 0 ] && echo "tcp:   the job survived" || echo "tcp:   the job ended with status $status: $error"
}

case ${1:-} in
agent) # what mpirun calls for ssh: HOST COMMAND
	[ "$2" = $b ] && exec nsenter -t "$b_pid" -n -u sh -c "${*:3}"
	exec sh -c "${*:3}"
	;;
inside)
	dir=$2 seconds=$3 ranks=$4
	hosts
	survive
	[ -z "$5" ] || beside
	exit
	;;
esac
[ $# -eq 3 ] && [[ $1 =~ ^[0-9]+$ && $1 -ge 4 ]] && [[ $2 =~ ^[0-9]+$ && $2 -ge 2 && $(($2 % 2)) = 0 ]] ||
	die "usage: demo-mpi.sh SECONDS RANKS BESIDE: at least 4 seconds and an even number of ranks, make demo-mpi SECONDS=30 RANKS=4 BESIDE=1"
TMPDIR=${TMPDIR:-/tmp}
need_mpi || die "the demo needs Open MPI with its compiler, and iproute2"
for f in rdsd rdsctl fabric/librdsd-fi.so; do [ -e "$bin/$f" ] || die "no $bin/$f: make demo-mpi builds it"; done
namespaces=(unshare -n -m -u -i -p -f --kill-child --mount-proc)
[ "$(id -u)" -eq 0 ] || namespaces+=(-U -r)
"${namespaces[@]}" true || die "the demo needs namespaces: run it as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0)"
[ ${#TMPDIR} -le 60 ] || TMPDIR=/tmp # for the sockets' paths
dir=$(mktemp -d "$TMPDIR/rdsd-demo-mpi-XXXXXX")
inside=
trap '[ -z "$inside" ] || { kill -9 "$inside"; wait "$inside"; } 2>/dev/null || true; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
mpicc -O2 -Wall -Wextra -Werror -o "$dir/sums" "$ROOT/examples/mpi/sums.c"
export TMPDIR=$dir RDSD_SOCKET=$dir/%n.sock FI_PROVIDER_PATH=$bin/fabric OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
setpriv --pdeathsig KILL "${namespaces[@]}" "$me" inside "$dir" "$@" &
inside=$!
status=0
wait $inside || status=$?
inside=
exit $status
