package nbd

import (
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// functions are of the host: three daemons at 127.9.0.1 to 3, blockstores beside the first
// two, nbd with a mirror of both beside the third.
const functions = `
	set -eu
	daemon() {
		rdsd -socket /run/rdsd$1 -listen 127.9.0.$1 -log-level error >>/tmp/rdsd$1.log 2>&1 &
		echo $! >/run/rdsd$1.pid
		lab_wait 60 rdsctl -socket /run/rdsd$1 status
	}
	store() {
		blockstore serve -socket /run/rdsd$1 -bind 127.9.0.$1 /tmp/leg$1 >/tmp/store$1.log 2>&1 &
		echo $! >/run/store$1.pid
		lab_wait 60 grep -q serving /tmp/store$1.log
	}
	front() {
		nbd "$@" -socket /run/rdsd3 -bind 127.9.0.3 -listen unix:/run/disk.sock disk=127.9.0.1,127.9.0.2 >/tmp/nbd.log 2>&1 &
		echo $! >/run/nbd.pid
		lab_wait 60 grep -q '^serving' /tmp/nbd.log
	}
	in_sync() { # N: since nbd was started, legs were brought in sync N times
		lab_wait 120 eval "test \$(grep -c 'leg is in sync' /tmp/nbd.log) -ge $1"
	}
	kill9() {
		kill -KILL "$(cat /run/$1.pid)"
		lab_wait 60 eval "! kill -0 $(cat /run/$1.pid)"
	}
	attach() { nbd-client -unix /run/disk.sock -N disk -block-size 4096 "$1"; }
	files() { # PREFIX N: files that are on stable storage, and their sums in /tmp/sums
		for i in $(seq "$2"); do
			head -c $((RANDOM * 8 + 1)) /dev/urandom >/mnt/$1$i || return 0
			sync /mnt/$1$i || return 0
			(cd /mnt && sha256sum $1$i) >/tmp/sum || return 0
			cat /tmp/sum >>/tmp/sums
		done
	}
`

// TestExt4: ext4 over nbd is whole after legs, a daemon and connections failed while it was
// written, and after nbd was killed. No file is lost that was on stable storage.
func TestExt4(t *testing.T) {
	l := lab.Boot(t, lab.Config{MemMiB: 1536, Limit: lab.Life(8 * time.Minute)})
	l.Install(t, lab.Build(t, "cmd/rdsd"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "examples/blockstore"), lab.Build(t, "examples/nbd"))
	run := func(script string) {
		t.Helper()
		start := time.Now()
		out := l.A.Run(t, 4*time.Minute, functions+script)
		t.Logf("%v: %s", time.Since(start).Round(time.Second), out)
	}
	run(`
		lab_load nbd ext4
		for i in 1 2 3; do daemon $i; done
		for i in 1 2; do truncate -s 66M /tmp/leg$i; store $i; done
		front -anew
		in_sync 1
		attach /dev/nbd0
		mkfs.ext4 -q -b 4096 /dev/nbd0
		mount /dev/nbd0 /mnt`)
	writer := l.A.Start(t, functions+`files a 25; touch /tmp/written`)
	run(`
		lab_wait 120 test -e /mnt/a3
		kill9 store1
		lab_wait 120 grep -q 'leg failed' /tmp/nbd.log
		store 1
		in_sync 2
		rdsctl -socket /run/rdsd3 peer reset 127.9.0.1
		rdsctl -socket /run/rdsd2 peer reset 127.9.0.3
		kill9 store2
		kill9 rdsd2
		daemon 2
		store 2
		in_sync 3`)
	if r := writer.Wait(4 * time.Minute); r.Err() != nil {
		t.Fatal(r.Err())
	}
	run(`
		test -e /tmp/written
		umount /mnt
		fsck.ext4 -fn /dev/nbd0
		mount /dev/nbd0 /mnt
		(cd /mnt && sha256sum -c --quiet /tmp/sums)
		wc -l </tmp/sums`)
	writer = l.A.Start(t, functions+`files b 1000`)
	run(`
		lab_wait 120 test -e /mnt/b5
		kill9 nbd
		dmesg | grep -i 'nbd0' | tail -n 3`)
	if r := writer.Wait(4 * time.Minute); r.Err() != nil {
		t.Fatal(r.Err())
	}
	run(`
		umount /mnt || umount -l /mnt
		nbd-client -d /dev/nbd0 || :
		front
		in_sync 1
		attach /dev/nbd1
		mount /dev/nbd1 /mnt # ext4 replays its journal
		(cd /mnt && sha256sum -c --quiet /tmp/sums)
		test "$(grep -c ' b' /tmp/sums)" -ge 4
		umount /mnt
		fsck.ext4 -fn /dev/nbd1
		nbd-client -d /dev/nbd1
		kill -TERM "$(cat /run/nbd.pid)"
		lab_wait 60 eval "! kill -0 $(cat /run/nbd.pid)"
		cmp -n $((66 * 1024 * 1024 - 65536)) /tmp/leg1 /tmp/leg2
		grep 'in sync' /tmp/nbd.log`)
}
