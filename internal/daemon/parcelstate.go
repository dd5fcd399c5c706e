package daemon

import (
	"os"
	"time"

	"github.com/rdsd/rdsd/internal/handover"
)

// handOverOpening has go over what a daemon needs to open everything. It is the first parcel.
func handOverOpening(s *handover.State, f *handover.Files, u *upgrades, ls *listeners) {
	s.Begin(handover.TagDaemon)
	handOverContracts(s)
	u.handOver(s)
	ls.handOver(s, f)
	s.End()
}

// handOver has go over what d has around its engine. It is the second parcel, but for the engine's state,
// which follows in the section that handOver begins. stood is when the engine took nothing in any more.
// j is a copy of the journal if it is written.
func (d *Daemon) handOver(s *handover.State, f *handover.Files, h *heirs, stood *time.Time, j *journal) {
	info, last := d.info, uint64(0)
	if s.Reads() {
		info.PID = os.Getpid()
	} else {
		last = j.seq
	}
	s.Begin(handover.TagDaemon)
	s.U64(&info.Instance)
	s.I64(&info.Start)
	s.Time(stood)
	if s.U64(&last); s.Reads() {
		j.follows(last)
	}
	h.handOver(s, f)
	d.handOverStats(s, info)
	if s.Version() >= 2 {
		j.handOver(s)
	}
}
