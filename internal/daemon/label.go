package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// labels gives processes the labels of their cgroups (quota.accounts).
type labels struct {
	cgroupOf func(*ipc.Conn) ([]byte, error) // in which the process that made a connection is: its /proc/PID/cgroup
	warning  atomic.Pointer[string]          // for the status: why the first process without a readable cgroup has no label; nil: there is none
}

// label sets the label of the process that has made a connection: that of the cgroup in which
// the process is now. A process whose cgroup cannot be read has none, and counts for its user. label
// returns false if processes can bring the cause about to have no account: the connection is to be closed.
func (d *Daemon) label(c *ipc.Conn, id *ipc.Cred) bool {
	p := d.policy.Load()
	if len(p.Quotas.Accounts) == 0 || id.Label != "" {
		return true
	}
	cgroup, err := d.labels.cgroupOf(c)
	if err == nil {
		id.Label = p.Label(cgroup)
		return true
	}
	if broughtAbout(err) {
		d.summed.write(time.Now(), slog.LevelInfo, id.UID, "no account", "pid", id.PID, "err", err)
		return false
	}
	w := fmt.Sprintf("quota.accounts: processes whose cgroup cannot be read count for their users: %v", err)
	if d.labels.warning.CompareAndSwap(nil, &w) {
		d.log.Warn(w)
	}
	return true
}

// broughtAbout reports whether processes can cause err: one of them has ended, or they have used up
// descriptors or memory.
func broughtAbout(err error) bool {
	return slices.ContainsFunc([]error{ipc.ErrPeerEnded, unix.EMFILE, unix.ENFILE, unix.ENOMEM}, func(e error) bool { return errors.Is(err, e) })
}
