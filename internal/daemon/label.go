package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
)

// labels gives processes the labels of their cgroups (quota.accounts).
type labels struct {
	cgroupOf func(*ipc.Conn) ([]byte, error) // in which the process that made a connection is: its /proc/PID/cgroup
	warning  atomic.Pointer[string]          // for the status: why the first process without a readable cgroup has no label; nil: there is none
}

// label sets the label of the process that has made a connection: that of the cgroup in which
// the process is now. A process whose cgroup cannot be read has none, and counts for its user. label
// returns false if that is because it has ended, which a process can bring about to have no account.
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
	if errors.Is(err, ipc.ErrPeerEnded) {
		d.summed.write(time.Now(), slog.LevelInfo, id.UID, "no account", "pid", id.PID, "err", err)
		return false
	}
	w := fmt.Sprintf("quota.accounts: processes whose cgroup cannot be read count for their users: %v", err)
	if d.labels.warning.CompareAndSwap(nil, &w) {
		d.log.Warn(w)
	}
	return true
}
