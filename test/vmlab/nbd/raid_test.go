package nbd

import (
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// functions are of both hosts. Each has a daemon and a blockstore with one leg. The first has an
// nbd for each leg.
const functions = `
	set -eu
	daemon() {
		rdsd -socket /run/rdsd -listen $ME -peers-allow 10.9.0.0/24 -tls-mode off -log-level error >>/tmp/rdsd.log 2>&1 &
		lab_wait 60 rdsctl -socket /run/rdsd status
	}
	store() {
		blockstore serve -socket /run/rdsd -bind $ME /xfer/leg.$HOST >/tmp/store.log 2>&1 &
		lab_wait 60 grep -q serving /tmp/store.log
	}
	front() { # LEG REMOTE DEVICE
		nbd -socket /run/rdsd -bind $ME -patience 5s -give-up 5s -listen unix:/run/$1 $2 >/tmp/nbd.$1 2>&1 &
		echo $! >/run/nbd.$1
		lab_wait 60 grep -q '^serving' /tmp/nbd.$1
		attach $1 $3
	}
	attach() { # LEG DEVICE
		nbd-client -unix /run/$1 -timeout 20 -block-size 4096 $2 >/dev/null
	}
	quiet() { # md0 does not copy anything any more
		mdadm --wait /dev/md0 || : # it fails if there is nothing to wait for
		grep -q '\[UU\]' /proc/mdstat
	}
	files() { # PREFIX N: files that are on stable storage, and their sums in /tmp/sums
		for i in $(seq "$2"); do
			head -c $((RANDOM * 8 + 1)) /dev/urandom >/mnt/$1$i || return 0
			sync /mnt/$1$i || return 0
			(cd /mnt && sha256sum $1$i) >/tmp/sum || return 0
			cat /tmp/sum >>/tmp/sums
		done
	}
	whole() { # the files are as they were written, and so is the file system
		(cd /mnt && sha256sum -c --quiet /tmp/sums)
		umount /mnt
		fsck.ext4 -fn /dev/md0
	}
	equal() { # no sector of the legs differs
		echo check >/sys/block/md0/md/sync_action
		quiet
		test "$(cat /sys/block/md0/md/mismatch_cnt)" = 0
	}
`

// TestRAID: Linux's md makes stripes and a mirror of two nbd disks, whose blockstores are on two
// hosts. One host of the mirror loses its power while ext4 is written. Reads and writes go on,
// and the host's leg is rebuilt when it is back. Then nbd is killed, both legs fail, and the
// mirror is assembled from one of them, and then from both. No file is lost that was on stable
// storage.
func TestRAID(t *testing.T) {
	l := lab.Boot(t, lab.Config{Hosts: 2, Limit: lab.Life(9 * time.Minute)})
	l.Install(t, lab.Build(t, "cmd/rdsd"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "examples/blockstore"), lab.Build(t, "examples/nbd"))
	run := func(script string) {
		t.Helper()
		start := time.Now()
		out := l.A.Run(t, 4*time.Minute, functions+"trap 'tail -n 20 /tmp/nbd.* /proc/mdstat; dmesg | tail -n 30' ERR\n"+script)
		t.Logf("%v: %s", time.Since(start).Round(time.Second), out)
	}
	wait := func(writer *lab.Job) {
		t.Helper()
		if r := writer.Wait(4 * time.Minute); r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
	l.Each(t, time.Minute, functions+`truncate -s 32M /xfer/leg.$HOST; daemon; store`)
	run(`
		lab_load nbd raid0 raid1 ext4
		front a 10.9.0.1 /dev/nbd0
		front b 10.9.0.2 /dev/nbd1
		mdadm --create /dev/md0 --run --level=0 --raid-devices=2 /dev/nbd0 /dev/nbd1
		head -c 8M /dev/urandom >/tmp/data
		dd if=/tmp/data of=/dev/md0 bs=1M oflag=direct status=none
		mdadm --stop /dev/md0
		mdadm --assemble /dev/md0 /dev/nbd0 /dev/nbd1
		cmp -n 8388608 /tmp/data /dev/md0
		mdadm --stop /dev/md0
		mdadm --zero-superblock /dev/nbd0 /dev/nbd1`)
	run(`
		mdadm --create /dev/md0 --run --level=1 --bitmap=internal --bitmap-chunk=64K --raid-devices=2 /dev/nbd0 --write-mostly /dev/nbd1
		quiet
		mkfs.ext4 -q -b 4096 /dev/md0
		mount /dev/md0 /mnt`)
	writer := l.A.Start(t, functions+`files a 25; test -e /mnt/a25`)
	run(`
		lab_wait 120 test -e /mnt/a3
		rdsctl -socket /run/rdsd peer reset $PEER
		lab_wait 120 test -e /mnt/a6`)
	l.PowerOff(l.B)
	run(`
		lab_wait 120 grep -q '\[U_\]' /proc/mdstat
		tail -n 1 /tmp/nbd.b`)
	wait(writer)
	l.PowerOn(t, l.B)
	l.B.Run(t, time.Minute, functions+`install /xfer/{rdsd,rdsctl,blockstore} /usr/local/bin; daemon; store`)
	writer = l.A.Start(t, functions+`files b 10; test -e /mnt/b10`)
	run(`
		mdadm /dev/md0 --remove /dev/nbd1
		nbd-client -d /dev/nbd1 >/dev/null
		attach b /dev/nbd1
		written() { awk '{ print $7 }' /sys/block/nbd1/stat; }
		before=$(written)
		mdadm /dev/md0 --re-add /dev/nbd1
		quiet
		test $((($(written) - before) / 2048)) -lt 16 # MiB: only what it missed
		echo $((($(written) - before) / 2)) KiB`)
	wait(writer)
	run(`
		whole
		equal
		mount /dev/md0 /mnt`)
	writer = l.A.Start(t, functions+`files c 1000`)
	run(`
		lab_wait 120 test -e /mnt/c5
		kill -KILL $(cat /run/nbd.a /run/nbd.b)`)
	wait(writer)
	run(`
		umount /mnt || umount -l /mnt
		mdadm --stop /dev/md0
		nbd-client -d /dev/nbd0
		nbd-client -d /dev/nbd1
		front a 10.9.0.1 /dev/nbd0
		mdadm --assemble --run /dev/md0 /dev/nbd0
		mount /dev/md0 /mnt # ext4 replays its journal
		whole
		test "$(grep -c ' c' /tmp/sums)" -ge 4
		front b 10.9.0.2 /dev/nbd1
		mdadm /dev/md0 --re-add /dev/nbd1
		quiet
		equal`)
}
