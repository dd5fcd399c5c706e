#!/usr/bin/env bash
# A host loses all its peers, and they come back at once: storm.sh [PEERS [SECONDS]], as root, after
# `make programs`. The peers are addresses of one daemon in another network namespace. Between the
# namespaces no packet passes for SECONDS (default 60), more than peers.silence. Then it reports when
# connections are up, counted from the network's return, and messages there, counted from the first.
set -euo pipefail
peers=${1:-1000} seconds=${2:-60}
cd "$(dirname "$0")/../.."
if [ -z "${STORM_INSIDE:-}" ]; then
	CGO_ENABLED=0 go build -o bin/storm ./test/storm
	STORM_INSIDE=1 exec unshare --net --mount --pid --fork --kill-child bash test/storm/storm.sh "$peers" "$seconds"
fi
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
ip link set lo up
unshare --net sleep infinity &
far=$!
until [ "$(readlink "/proc/$far/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
there() { nsenter --net="/proc/$far/ns/net" "$@"; }
ip link add wire type veth peer name wire netns "$far"
ip addr add 10.0.0.1/8 dev wire
ip link set wire up
there ip link set lo up
there ip link set wire up
listen=
for ((i = 1; i <= peers; i++)); do
	a=10.1.$((i >> 8)).$((i & 255))
	echo "addr add $a/8 dev wire"
	listen+=,$a
done >/run/addresses
there ip -batch /run/addresses
ulimit -n "$(ulimit -Hn)"
daemon() { "${@:3}" bin/rdsd -socket "/run/$1.sock" -listen "$2" -peers-allow 10.0.0.0/8 -tls-mode off -tls-warn off >"/run/$1.log" 2>&1 & }
daemon near 10.0.0.1
daemon far "${listen#,}" there
for d in near far; do
	until bin/rdsctl status -socket "/run/$d.sock" >/dev/null 2>&1; do sleep 0.05; done
done
memory() { echo "the daemon of $peers peers has $(ps -C rdsd -o rss= | sort -n | tail -1) KiB resident"; }
mkfifo /run/end
there bin/storm recv /run/far.sock "$peers" </run/end &
receiver=$!
exec 9>/run/end
sleep 2
bin/storm send /run/near.sock "$peers" 9>&- &
until [ "$(bin/rdsctl peers -socket /run/near.sock 2>/dev/null | grep -c ' up ')" = "$peers" ]; do sleep 0.2; done
memory
nft 'add table ip hole; add chain ip hole in { type filter hook input priority 0; }; add chain ip hole out { type filter hook postrouting priority 0; }; add rule ip hole in iifname wire drop; add rule ip hole out oifname wire drop'
sleep "$seconds"
back=$(date +%s.%N)
nft delete table ip hole
until [ "$(bin/rdsctl peers -socket /run/near.sock 2>/dev/null | grep -c ' up ')" = "$peers" ]; do sleep 0.2; done
sleep 3
exec 9>&-
wait "$receiver"
memory
echo "connections, after the return of the network:"
grep 'msg=up' /run/near.log | sed 's/time=\([^ ]*\) .*/\1/' | date -f - +%s.%N | awk -v back="$back" '$1 > back { print $1 - back }' | sort -n |
	awk '{ v[NR] = $1 } END { for (i = 1; i <= split("1 10 25 50 75 90 99 100", share); i++) { n = int(NR * share[i] / 100); if (n) printf "%3d%% %.3f s\n", share[i], v[n] } }'
