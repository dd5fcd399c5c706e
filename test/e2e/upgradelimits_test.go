package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
	"golang.org/x/sys/unix"
)

// inMounts runs a process in a mount namespace of its own.
var inMounts = []string{"unshare", "--mount"}

// onFullDisk puts the daemon's folder on a file system that has room for one daemon's files and
// not for those of two.
func onFullDisk(t *testing.T) option {
	return func(h *host) {
		size := fmt.Sprintf("size=%d", (stats.Size+stats.ListSize)*3/2)
		if err := unix.Mount("tmpfs", h.dir, "tmpfs", 0, size); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(h.dir, unix.MNT_DETACH) })
	}
}

// TestUpgradeDiskFull has no room for the successor's files. When there is, the upgrade succeeds.
func TestUpgradeDiskFull(t *testing.T) {
	if out, err := exec.Command(inMounts[0], append(inMounts[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces: %v: %s", err, out)
	}
	isolatedUnder(t, inMounts, func(t *testing.T) {
		here, there := newHost(t, onFullDisk(t)), newHost(t)
		here.expected = []string{"upgrade failed"}
		b := startBystanders(t, here, there)
		for range 2 {
			here.upgradeFails(nil, "statistics file", "no space left on device")
			b.progress()
		}
		more := fmt.Sprintf("size=%d", (stats.Size+stats.ListSize)*3)
		if err := unix.Mount("", here.dir, "", unix.MS_REMOUNT, more); err != nil {
			t.Fatal(err)
		}
		here.upgrade()
		b.progress()
		b.finish()
	})
}

// limitFiles sets how many files a process and those that it starts may have open. Without
// CAP_SYS_RESOURCE a limit can only be lowered.
func limitFiles(pid, n int) error {
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)}, nil)
}

// openFiles is how many files a process has open.
func openFiles(pid int) int {
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(fds)
}

// narrowing upgrades a daemon again and again with fewer and fewer descriptors. The first
// upgrade must succeed and those with the fewest must fail, without harm.
type narrowing struct {
	*host
	b          *bystanders
	done, fail int
}

func newNarrowing(t *testing.T, clients int) *narrowing {
	t.Helper()
	here, there := newHost(t), newHost(t)
	here.expected = []string{"upgrade failed", "too many open files", "fatal error", "no planned restarts"}
	n := &narrowing{host: here, b: startBystanders(t, here, there)}
	for range clients { // they do nothing, and their descriptors go over
		here.bind(here.openWith(rds.Options{Params: rds.Params{SubEntries: 64, EventEntries: 128, MaxMsgs: 64, MaxRx: 64, Slots: 64, Cells: 64, SendWindows: 1, RecvWindows: 1}}), 0)
	}
	return n
}

// try upgrades with so many descriptors.
func (n *narrowing) try(limit int, pids ...int) {
	t := n.t
	t.Helper()
	for _, pid := range pids {
		if err := limitFiles(pid, limit); err != nil {
			t.Fatal(err)
		}
	}
	if p := n.upgrading(); p.wait() == 0 {
		n.succeeded(p)
		n.done++
	} else {
		n.failed(p, "daemon upgrade: ")
		n.fail++
	}
	if t.Failed() {
		t.Fatalf("with %d descriptors: see above", limit)
	}
}

// end raises the limit again, if that is allowed, and checks everything. At least so many
// upgrades must have failed.
func (n *narrowing) end(least int) {
	t := n.t
	t.Helper()
	n.b.progress()
	if limitFiles(n.starter(), 1024) == nil && limitFiles(n.pid(), 1024) == nil {
		n.upgrade()
		n.b.progress()
	}
	t.Logf("%d upgrades succeed and %d fail", n.done, n.fail)
	if n.done < 1 || n.fail < least {
		t.Error("too few of a kind")
	}
	n.b.finish()
}

// TestUpgradeDescriptors gives successors fewer and fewer descriptors: at last not enough to start.
func TestUpgradeDescriptors(t *testing.T) {
	isolated(t, func(t *testing.T) {
		n := newNarrowing(t, 30) // more descriptors than go in one packet
		needs := openFiles(n.pid())
		for _, limit := range []int{2 * needs, needs * 5 / 4, needs, needs * 3 / 4, needs / 2, needs / 3, 50, 30, 25, 20, 15, 12, 9, 6} {
			n.try(limit, n.starter())
		}
		n.end(5)
	})
}

// TestUpgradeNearLimit: the daemon that hands over has hardly any descriptor left, and its
// successor gets no more than it has.
func TestUpgradeNearLimit(t *testing.T) {
	isolated(t, func(t *testing.T) {
		n := newNarrowing(t, 10)
		n.try(2*openFiles(n.pid()), n.starter(), n.pid())
		// What is counted may include a descriptor that is about to be closed, so the number at
		// which upgrades fail is not known.
		for more := 10; n.fail == 0; more-- {
			n.try(openFiles(n.pid())+more, n.starter(), n.pid())
		}
		n.end(1)
	})
}
