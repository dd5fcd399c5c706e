package daemon

import (
	"errors"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/stats"
)

// encodeStats writes the statistics. The engine stands still.
func (d *Daemon) encodeStats(w *handover.Writer) { d.loop.stats.HandOver(w.State()) }

// adoptStats has the statistics go on from what encodeStats wrote, as those of info. The
// engine adopts its state afterwards, because it counts gauges.
func (d *Daemon) adoptStats(r *handover.Reader, info stats.Info) {
	d.info = info
	d.loop.stats.SetInfo(info)
	d.lists.SetInfo(info)
	d.loop.stats.HandOver(r.State())
}

// ownStats has readers find this daemon's statistics instead of those of the daemon before.
func (d *Daemon) ownStats() error { return errors.Join(d.listFile.Own(), d.statFile.Own()) }

// leaveStats leaves the statistics' paths to the daemon that takes over.
func (d *Daemon) leaveStats() {
	d.listFile.Leave()
	d.statFile.Leave()
}

// removeAside removes the statistics of a successor that was killed before it served.
func (d *Daemon) removeAside() {
	path := d.config().Stats
	stats.RemoveAside(path)
	stats.RemoveAside(config.ListsPath(path))
}
