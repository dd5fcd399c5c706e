package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/service"
	"github.com/rdsd/rdsd/internal/stats"
)

const statusEvery = 10 * time.Second

// feed tells to that the engine turns, as often as it wants to
// hear it, and how things are. An engine that does not turn is not fed for: a
// goroutine that is well proves nothing.
func (d *Daemon) feed(ctx context.Context, to *service.Notifier) {
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
			snap := d.reader.Snapshot()
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

// statusLine is the daemon in a line.
func (d *Daemon) statusLine() string {
	snap := d.reader.Snapshot()
	n := func(i stats.Counter) uint64 { return snap.Values[i].Value }
	return fmt.Sprintf("serving %v port %d; %d clients, %d sockets, %d of %d peers up", d.config().Listen, d.config().Port,
		n(stats.Clients), n(stats.Sockets), n(stats.PeersUp), n(stats.Peers))
}
