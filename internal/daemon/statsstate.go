package daemon

import (
	"errors"
	"os"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/stats"
)

// handOverStats has the statistics go over. The engine stands still. Those that are read go on as those of
// info, and the engine adopts its state afterwards, because it counts gauges.
func (d *Daemon) handOverStats(s *handover.State, info stats.Info) {
	if s.Reads() {
		d.info = info
		d.loop.stats.SetInfo(info)
		d.lists.SetInfo(info)
	}
	d.loop.stats.HandOver(s)
}

// ownStats has readers find this daemon's statistics instead of those of the daemon before.
func (d *Daemon) ownStats() error {
	_ = os.Remove(config.OldListsPath(d.statFile.Path()))
	return errors.Join(d.listFile.Own(), d.statFile.Own())
}

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
