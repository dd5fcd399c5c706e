#!/bin/sh
# Measures the figures in docs/performance.md, section "A block device": a disk at
# another daemon, reached through rdsd, beside nbdkit's servers. It needs the programs
# of make build, and fio, nbdkit and libnbd's nbdcopy. SECONDS_EACH=n sets the time of
# each fio run. All processes are on this machine. All storage is in the folder TMPDIR,
# by default /dev/shm, which is memory.
set -eu
bin=${BIN:-$(dirname "$0")/../../bin}
seconds=${SECONDS_EACH:-2}
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
	fio --name=j --ioengine=nbd "--uri=$1" --size=512m --rw="$2" --bs="$3" --iodepth="$4" --runtime="$seconds" --time_based \
		--output-format=terse --terse-version=3 2>"$dir/fio.log" | grep ';' || { cat "$dir/fio.log" >&2; exit 1; }
}
iops() { fio1 "$@" | awk -F';' '{print $8 + $49}'; }

printf '%-36s %14s %16s %16s %12s\n' '' 'nbdcopy MiB/s' '4k depth 1 IOPS' '4k depth 16 IOPS' '128k 16 MiB/s'
printf '%-36s %7s%7s %8s%8s %8s%8s %12s\n' '' in out read write read write both
measure() { # NAME URI
	in=$(rate 512 nbdcopy "$dir/src" "$2")
	out=$(rate 1024 nbdcopy "$2" null:)
	big=$(fio1 "$2" randrw 128k 16 | awk -F';' '{printf "%d", ($7 + $48) / 1024}')
	printf '%-36s %7s%7s %8s%8s %8s%8s %12s\n' "$1" "$in" "$out" "$(iops "$2" randread 4k 1)" "$(iops "$2" randwrite 4k 1)" \
		"$(iops "$2" randread 4k 16)" "$(iops "$2" randwrite 4k 16)" "$big"
}
measure 'rdsd: nbd, two daemons, blockstore' "nbd+unix:///?socket=$dir/n"
measure 'nbdkit file, TCP' "nbd://127.0.0.1:${PORT:-10991}"
measure 'nbdkit file, unix socket' "nbd+unix:///?socket=$dir/file"
measure 'nbdkit memory, unix socket' "nbd+unix:///?socket=$dir/memory"
