package daemon

import (
	"context"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

const (
	watchEvery     = time.Second
	watchIdleEvery = 30 * time.Second // while the engine sleeps and nothing is to be logged
	idleTurns      = 4                // an idle engine turns this often between two looks, to show that it lives
)

// watch logs when the engine stops turning and when it turns again, it logs what
// is logged in sums, and it looks for new certificates. It returns when ctx ends.
func (d *Daemon) watch(ctx context.Context) {
	tick := time.NewTimer(watchEvery)
	defer tick.Stop()
	stuck, turns := false, uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			snap := d.statistics.Snapshot()
			idle := snap.State == stats.Sleeping && snap.Turns.Turns-turns <= idleTurns
			turns = snap.Turns.Turns
			late := snap.Late(now)
			if late >= ctl.StallAfter && !stuck {
				d.log.Error("the engine does not turn", "late", late)
			} else if late < ctl.StallAfter && stuck {
				d.log.Warn("the engine turns again")
			}
			stuck = late >= ctl.StallAfter
			d.countDropped()
			d.lookAtCertificates()
			if n := d.admission.saidNothing.Swap(0); n > 0 {
				d.log.Warn("client ended: said nothing", "connections", n)
			}
			if n := d.peerEvents.lost.Swap(0); n > 0 {
				d.log.Info("more events of peers than could be logged", "events", n)
			}
			if d.summed.tick(now) && idle && !stuck {
				tick.Reset(watchIdleEvery)
			} else {
				tick.Reset(watchEvery)
			}
		}
	}
}

// countDropped counts the lines of the log that were dropped since the last call.
func (d *Daemon) countDropped() {
	was, now := d.counted.Load(), d.lines.Dropped()
	if now > was && d.counted.CompareAndSwap(was, now) { // else somebody else counts them
		d.engine.CountAll(stats.LogDropped, now-was)
	}
}
