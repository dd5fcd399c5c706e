package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/logqueue"
	"github.com/rdsd/rdsd/internal/service"
	"github.com/rdsd/rdsd/internal/stats"
)

// Supervisor is what started the daemon and watches it. The zero value stands for no
// supervisor.
type Supervisor struct {
	Sockets *service.Sockets  // open already; New takes the sockets that it listens on
	Notify  *service.Notifier // is notified of the daemon's state
	Log     *logqueue.Queue   // what the logger writes to; nil: something else

	inherits *inheritance // nil: the daemon takes over from nobody
}

const statusEvery = 10 * time.Second // between two notices of the status

// reportTo notifies the supervisor that the daemon serves, then that it is alive, as often as
// the supervisor asks for, and of the daemon's status. It does so only while the engine turns, because that this
// goroutine runs proves nothing. After a time in which this goroutine did not run either, the whole process or machine
// stood still: then the engine has as long as ever to turn again. reportTo returns when ctx ends.
func (d *Daemon) reportTo(ctx context.Context, to *service.Notifier) {
	to.Ready(d.statusLine())
	every := statusEvery
	if w := to.Watchdog; w > 0 {
		every = min(every, max(w/3, time.Millisecond))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	said, last := d.statusLine(), time.Now()
	ran := awake{at: last}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			snap := d.statistics.Snapshot()
			if w := to.Watchdog; w > 0 && min(snap.Late(now), ran.tick(now, max(w/2, time.Second))) < w/2 {
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

// awake says since when a goroutine that is due at intervals has run without a gap.
type awake struct {
	at    time.Time // when it ran last
	since time.Time // when the last gap ended; zero: there was none
}

// tick notes that the goroutine runs now. A time of gap or more without a tick is a gap. tick returns the time
// since the last one.
func (a *awake) tick(now time.Time, gap time.Duration) time.Duration {
	if now.Sub(a.at) >= gap {
		a.since = now
	}
	a.at = now
	return now.Sub(a.since)
}

// statusLine is the status in one line.
func (d *Daemon) statusLine() string {
	snap := d.statistics.Snapshot()
	n := func(i stats.Counter) uint64 { return snap.Values[i].Value }
	return fmt.Sprintf("serving %v port %d; %d clients, %d sockets, %d of %d peers up", d.config().Listen, d.config().Port,
		n(stats.Clients), n(stats.Sockets), n(stats.PeersUp), n(stats.Peers))
}
