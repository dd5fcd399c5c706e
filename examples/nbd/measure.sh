#!/bin/sh
# Measures the figures in docs/performance/2026-11-23-block-device.md: a disk at
# another daemon, reached through rdsd, beside nbdkit's servers. It needs the programs
# of make build, and fio, nbdkit and libnbd's nbdcopy. The servers take turns, ROUNDS=n
# times (3), with MS_EACH=n ms (1000) of each fio run, and the figures are medians: one
# server after the other would measure what else the machine does. SERVERS='rdsd tcp unix
# memory' selects some. All processes are on this machine. All storage is in the folder
# TMPDIR, by default /dev/shm, which is memory.
set -eu
bin=${BIN:-$(dirname "$0")/../../bin}
ms=${MS_EACH:-1000}
rounds=${ROUNDS:-3}
servers=${SERVERS:-rdsd tcp unix memory}
for p in fio nbdkit nbdcopy; do
	command -v "$p" >/dev/null || { echo "measure.sh: $p is not installed (packages fio, nbdkit, libnbd-bin)" >&2; exit 1; }
done
for p in rdsd blockstore nbd; do
	[ -x "$bin/$p" ] || { echo "measure.sh: no $bin/$p: make build, or BIN=folder" >&2; exit 1; }
done
dir=$(mktemp -d "${TMPDIR:-/dev/shm}/rdsd-nbd-XXXXXX")
pids=
trap 'kill $pids 2>/dev/null || :; wait; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

start() { # FILE COMMAND...: runs the command and waits until it has made FILE, its socket or pid file
	ready=$1
	shift
	"$@" >"$dir/log" 2>&1 &
	pids="$pids $!"
	for _ in $(seq 100); do
		[ -e "$ready" ] && return
		sleep 0.05
	done
	echo "measure.sh: $1 does not serve:" >&2
	cat "$dir/log" >&2
	exit 1
}

truncate -s 1G "$dir/disk"
dd if=/dev/urandom of="$dir/src" bs=1M count=512 status=none
dd if="$dir/src" of="$dir/disk" conv=notrunc bs=1M status=none
dd if="$dir/src" of="$dir/disk" conv=notrunc bs=1M seek=512 status=none

start "$dir/a" "$bin/rdsd" -socket "$dir/a" -listen 127.81.0.1 -log-level error
start "$dir/b" "$bin/rdsd" -socket "$dir/b" -listen 127.81.0.2 -log-level error
start "$dir/a" "$bin/blockstore" serve --socket "$dir/a" --bind 127.81.0.1:4000 "$dir/disk"
sleep 0.5
start "$dir/n" "$bin/nbd" -socket "$dir/b" -bind 127.81.0.2 -listen "unix:$dir/n" 127.81.0.1:4000
start "$dir/tcp.pid" nbdkit -f -P "$dir/tcp.pid" -i 127.0.0.1 -p "${PORT:-10991}" file "$dir/disk"
start "$dir/file" nbdkit -f -U "$dir/file" file "$dir/disk"
start "$dir/memory" nbdkit -f -U "$dir/memory" memory 1G

# rate MIB COMMAND... prints the MiB/s of a command that moves so many MiB.
rate() {
	mib=$1
	shift
	from=$(date +%s%N)
	"$@" || { echo "measure.sh: $* failed" >&2; exit 1; }
	echo $((mib * 1000000000 / ($(date +%s%N) - from)))
}

# fio1 URI RW BLOCK DEPTH: line of fio in terse form 3
fio1() {
	fio --name=j --ioengine=nbd "--uri=$1" --size=512m --rw="$2" --bs="$3" --iodepth="$4" --runtime="${ms}ms" --time_based \
		--output-format=terse --terse-version=3 2>"$dir/fio.log" | grep ';' || { cat "$dir/fio.log" >&2; exit 1; }
}
iops() { fio1 "$@" | awk -F';' '{print $8 + $49}'; }

server() { # NAME: its URI
	case $1 in
	rdsd) echo "nbd+unix:///?socket=$dir/n" ;;
	tcp) echo "nbd://127.0.0.1:${PORT:-10991}" ;;
	unix) echo "nbd+unix:///?socket=$dir/file" ;;
	memory) echo "nbd+unix:///?socket=$dir/memory" ;;
	*) echo "measure.sh: no server $1: SERVERS is some of rdsd, tcp, unix, memory" >&2; exit 1 ;;
	esac
}
for s in $servers; do server "$s" >/dev/null; done

# one WHAT URI prints one figure.
one() {
	case $1 in
	in) rate 512 nbdcopy "$dir/src" "$2" ;;
	out) rate 1024 nbdcopy "$2" null: ;;
	128k16) fio1 "$2" randrw 128k 16 | awk -F';' '{printf "%d\n", ($7 + $48) / 1024}' ;;
	r1) iops "$2" randread 4k 1 ;;
	w1) iops "$2" randwrite 4k 1 ;;
	r16) iops "$2" randread 4k 16 ;;
	w16) iops "$2" randwrite 4k 16 ;;
	esac
}
kinds=${KINDS:-in out r1 w1 r16 w16 128k16}
for k in $kinds; do
	for _ in $(seq "$rounds"); do
		for s in $servers; do one "$k" "$(server "$s")" >>"$dir/figures.$s.$k"; done
	done
done

median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
names='rdsd=nbd, two daemons, blockstore
tcp=nbdkit file, TCP
unix=nbdkit file, unix socket
memory=nbdkit memory, unix socket'
echo "nbdcopy in and out: MiB/s; r, w: 4 KiB reads and writes, 1 or 16 at a time: IOPS; 128k16: 128 KiB, half of each, 16 at a time: MiB/s"
printf '%-34s' ''
for k in $kinds; do printf ' %8s' "$k"; done
echo
for s in $servers; do
	printf '%-34s' "$(echo "$names" | sed -n "s/^$s=//p")"
	for k in $kinds; do printf ' %8s' "$(median "$dir/figures.$s.$k")"; done
	echo
done
case " $servers " in
*' rdsd'*' tcp '*)
	printf '%-34s' 'rdsd to nbdkit file, TCP'
	for k in $kinds; do
		printf ' %8s' "$(awk "BEGIN { printf \"%.2f\", $(median "$dir/figures.rdsd.$k") / $(median "$dir/figures.tcp.$k") }")"
	done
	echo
	;;
esac
