package nbd

import (
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

const functions = `
	set -eu
	daemon() {
		rdsd -socket /run/rdsd -listen $ME -peers-allow 10.9.0.0/24 -tls-mode off -log-level error >>/tmp/rdsd.log 2>&1 &
		echo $! >/run/rdsd.pid
		lab_wait 60 rdsctl -socket /run/rdsd status
	}
	store() { # the host's leg
		blockstore serve -socket /run/rdsd -bind $ME /xfer/leg.$HOST >/tmp/store.log 2>&1 &
		echo $! >/run/store.pid
		lab_wait 60 grep -q serving /tmp/store.log
	}
	front() {
		nbd -socket /run/rdsd -bind $ME -patience 5s -give-up 5s -listen unix:/run/nbd a=10.9.0.1 b=10.9.0.2 >/tmp/nbd.log 2>&1 &
		echo $! >/run/nbd.pid
		lab_wait 60 grep -q '^serving' /tmp/nbd.log
	}
	attach() { # EXPORT DEVICE
		nbd-client -unix /run/nbd -N $1 -timeout 20 -block-size 4096 $2
	}
	kill9() {
		kill -KILL "$(cat /run/$1.pid)"
		lab_wait 60 eval "! kill -0 $(cat /run/$1.pid)"
	}
	files() { # PREFIX N: files that are on stable storage, and their sums in /tmp/sums
		for i in $(seq "$2"); do
			head -c $((RANDOM * 8 + 1)) /dev/urandom >/mnt/$1$i || return 0
			sync /mnt/$1$i || return 0
			(cd /mnt && sha256sum $1$i) >/tmp/sum || return 0
			cat /tmp/sum >>/tmp/sums
		done
	}
`

func TestX(t *testing.T) {
	l := lab.Boot(t, lab.Config{Hosts: 2, MemMiB: 1024, Limit: lab.Life(9 * time.Minute)})
	l.Install(t, lab.Build(t, "cmd/rdsd"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "examples/blockstore"), lab.Build(t, "examples/nbd"))
	run := func(h *lab.Host, script string) {
		t.Helper()
		start := time.Now()
		r := h.Start(t, functions+script).Wait(4 * time.Minute)
		t.Logf("%v: %v %s", time.Since(start).Round(time.Second), r.Status, r.Out)
		if r.Status != 0 {
			t.Log(l.A.Run(t, time.Minute, "dmesg | tail -n 60; cat /tmp/nbd.log; cat /proc/mdstat"))
			t.FailNow()
		}
	}
	l.Each(t, time.Minute, functions+`truncate -s 64M /xfer/leg.$HOST; daemon; store`)
	run(l.A, `
		set -x
		lab_load nbd raid1 raid0 ext4
		front
		attach a /dev/nbd0
		attach b /dev/nbd1
		cat /tmp/nbd.log
		mdadm --create /dev/md0 --run --level=0 --chunk=64 --raid-devices=2 /dev/nbd0 /dev/nbd1
		head -c 32M /dev/urandom >/tmp/data
		dd if=/tmp/data of=/dev/md0 bs=1M oflag=direct
		mdadm --stop /dev/md0
		mdadm --assemble /dev/md0 /dev/nbd0 /dev/nbd1
		cmp -n 33554432 /tmp/data /dev/md0
		mdadm --stop /dev/md0
		mdadm --zero-superblock /dev/nbd0 /dev/nbd1
		rm /tmp/data
	`)
	run(l.A, `
		set -x
		time mdadm --create /dev/md0 --run --level=1 --bitmap=internal --raid-devices=2 /dev/nbd0 /dev/nbd1
		cat /proc/mdstat
		mdadm --wait /dev/md0 || :
		cat /proc/mdstat
		mkfs.ext4 -q -b 4096 /dev/md0
		mount /dev/md0 /mnt`)
	writer := l.A.Start(t, functions+`files a 25; touch /tmp/written`)
	run(l.A, `
		lab_wait 120 test -e /mnt/a3
		rdsctl -socket /run/rdsd peer reset $PEER`)
	l.PowerOff(l.B)
	start := time.Now()
	run(l.A, `
		lab_wait 120 grep -q '_' /proc/mdstat
		cat /proc/mdstat /tmp/nbd.log
		dmesg | tail -n 20`)
	t.Log("degraded after ", time.Since(start))
	if r := writer.Wait(4 * time.Minute); r.Err() != nil {
		t.Fatal(r.Err())
	}
	l.PowerOn(t, l.B)
	run(l.B, `
		install /xfer/rdsd /xfer/rdsctl /xfer/blockstore /usr/local/bin
		daemon
		store`)
	run(l.A, `
		set -x
		nbd-client -c /dev/nbd1 || :
		nbd-client -d /dev/nbd1 || :
		attach b /dev/nbd1
		mdadm /dev/md0 --re-add /dev/nbd1 || { mdadm /dev/md0 --remove /dev/nbd1; mdadm /dev/md0 --re-add /dev/nbd1; }
		cat /proc/mdstat
		mdadm --wait /dev/md0 || :
		cat /proc/mdstat
		dmesg | tail -n 20
		umount /mnt
		fsck.ext4 -fn /dev/md0
		mount /dev/md0 /mnt
		(cd /mnt && sha256sum -c --quiet /tmp/sums)
		wc -l </tmp/sums`)
	writer = l.A.Start(t, functions+`files b 1000`)
	run(l.A, `
		lab_wait 120 test -e /mnt/b5
		kill9 nbd
		dmesg | tail -n 10`)
	if r := writer.Wait(4 * time.Minute); r.Err() != nil {
		t.Fatal(r.Err())
	}
	run(l.A, `
		set -x
		umount /mnt || umount -l /mnt
		cat /proc/mdstat
		mdadm --stop /dev/md0 || :
		cat /proc/mdstat
		nbd-client -d /dev/nbd0 || :
		nbd-client -d /dev/nbd1 || :
		front
		attach a /dev/nbd2
		attach b /dev/nbd3
		mdadm --examine /dev/nbd2 /dev/nbd3 | grep -E 'Events|State|Array'
		mdadm --assemble --run /dev/md1 /dev/nbd2 /dev/nbd3
		cat /proc/mdstat
		mount /dev/md1 /mnt # ext4 replays its journal
		(cd /mnt && sha256sum -c --quiet /tmp/sums)
		test "$(grep -c ' b' /tmp/sums)" -ge 4
		umount /mnt
		fsck.ext4 -fn /dev/md1
		mdadm --wait /dev/md1 || :
		cat /proc/mdstat
		echo check >/sys/block/md1/md/sync_action
		mdadm --wait /dev/md1 || :
		cat /sys/block/md1/md/mismatch_cnt
		mdadm --stop /dev/md1
		nbd-client -d /dev/nbd2
		nbd-client -d /dev/nbd3
		kill -TERM "$(cat /run/nbd.pid)"
		lab_wait 60 eval "! kill -0 $(cat /run/nbd.pid)"
		`)
}
