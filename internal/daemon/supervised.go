package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/service"
	"github.com/rdsd/rdsd/internal/stats"
)

// Supervisor is what started the daemon and watches it. The zero value stands for no
// supervisor.
type Supervisor struct {
	Sockets *service.Sockets  // open already; New takes the sockets that it listens on
	Notify  *service.Notifier // is notified of the daemon's state

	inherits *inheritance // nil: the daemon takes over from nobody
}

const statusEvery = 10 * time.Second // between two notices of the status

// reportTo notifies the supervisor that the daemon serves, then that it is alive, as often as
// the supervisor asks for, and of the daemon's status. It does so only while the engine turns, because that this
// goroutine runs proves nothing. It returns when ctx ends.
func (d *Daemon) reportTo(ctx context.Context, to *service.Notifier) {
	to.Ready(d.statusLine())
	every := statusEvery
	if w := to.Watchdog; w > 0 {
		every = min(every, max(w/3, time.Millisecond))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	said, last := d.statusLine(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			snap := d.statistics.Snapshot()
			if w := to.Watchdog; w > 0 && snap.Late(now) < w/2 {
				to.Alive()
			}
			if now.Sub(last) >= statusEvery {
				last = now
				if s := d.statusLine(); s != said {
					said = s
					to.Status(s)
				}
			}
		}
	}
}

// statusLine is the status in one line.
func (d *Daemon) statusLine() string {
	snap := d.statistics.Snapshot()
	n := func(i stats.Counter) uint64 { return snap.Values[i].Value }
	return fmt.Sprintf("serving %v port %d; %d clients, %d sockets, %d of %d peers up", d.config().Listen, d.config().Port,
		n(stats.Clients), n(stats.Sockets), n(stats.PeersUp), n(stats.Peers))
}
