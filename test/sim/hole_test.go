package sim

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
)

// TestBlackHole makes all packets between two hosts vanish while messages and operations are at
// every point of their way. The provider reports no break. Both daemons give the connection up
// within the silence that is allowed (30 s). The mark then passes all operations that were
// posted, and afterwards each outcome is exact.
func TestBlackHole(t *testing.T) {
	for _, c := range []struct {
		name   string
		lasts  int64 // duration of the hole
		settle int64
		broken bool
		fates  []rds.Status
	}{
		{"shorter than the silence", 20e9, 30e9, false, []rds.Status{rds.Success}},
		{"longer than the silence", 45e9, 30e9, true, []rds.Status{rds.Success, rds.Dropped}},
		{"longer than operations wait to be settled", 120e9, 5e9, true, []rds.Status{rds.Success, rds.Dropped, rds.Unknown}},
	} {
		for seed := uint64(1); seed <= 8; seed++ {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				s := newScriptWith(t, seed, func(o *options) { o.settleTimeout = c.settle })
				defer s.explain()
				s.hole(c.lasts, c.broken)
				s.drain()
				n := 0
				for _, st := range c.fates {
					n += s.fates()[st]
				}
				if n != len(s.ops) {
					t.Errorf("statuses %v of %d operations (%v), want only %v", s.fates(), len(s.ops), s.ops[0].fate.Errno, c.fates)
				}
				for _, f := range []*flow{s.a.flow(s.b.ap), s.b.flow(s.a.ap)} {
					if (f.downs > 0) != c.broken || f.downs > 1 || f.lost > 0 {
						t.Errorf("%v to %v: PeerDown %d times, Lost %d", f.src.ap, f.dst, f.downs, f.lost)
					}
				}
				s.finish()
			})
		}
	}
}

// hole opens a black hole while both hosts send.
func (s *script) hole(lasts int64, breaks bool) {
	s.t.Helper()
	load := func() {
		s.datagrams(3)
		s.issue(s.a, 2, abi.OpWrite, 20, false)
		s.issue(s.a, 2, abi.OpRead, 0, true)
		s.b.send(s.a.ap, 50, extra{})
	}
	load()
	s.run(below(s.rWork, 200_000))
	s.net.Swallow(s.a.h.addr, s.b.h.addr, true)
	load()
	s.run(lasts - 10e9)
	if up := s.a.flow(s.b.ap).downs == 0; up == breaks {
		s.t.Errorf("%d s after the packets began to vanish: connected %v", (lasts-10e9)/1e9, up)
	}
	if breaks {
		// The mark passes the operations that were posted. The others wait.
		s.ripe()
	}
	s.run(10e9)
	s.net.Swallow(s.a.h.addr, s.b.h.addr, false)
}

// ripe checks that the mark has passed the operations from before the hole.
func (s *script) ripe() {
	s.t.Helper()
	if got := s.a.s.HWM(s.b.ap.Addr()); got < 4 {
		s.t.Errorf("mark is %d though the connection is down, want at least 4", got)
	}
}

// swallow makes all packets between two hosts vanish for a while.
func (w *world) swallow(a, b netip.Addr) {
	d := below(w.rFault, pick[int64](w.rFault, 10e6, 200e6, 3e9))
	w.logText(w.hostOf(a), "hole", d, 0, 0, b.String())
	w.net.Swallow(a, b, true)
	w.net.At(w.now()+d, func() { w.net.Swallow(a, b, false) })
}
