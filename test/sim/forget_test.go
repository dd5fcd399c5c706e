package sim

import (
	"testing"

	"github.com/rdsd/rdsd/verbs/sim"
)

// TestForgotten has the receiver's daemon forget a peer that is away, when its messages are
// delivered and their acks lost. When the peer comes back it reports these messages as Lost,
// nothing is delivered a second time, and what it sends then arrives.
func TestForgotten(t *testing.T) {
	for _, c := range []struct {
		name   string
		after  int64 // ForgetAfter
		lost   uint64
		forgot int
	}{
		{"forgotten", 100e9, 10, 1},
		{"still known", 900e9, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScriptWith(t, 1, func(o *options) { o.forgetAfter = c.after })
			defer s.explain()
			f := s.b.flow(s.a.ap)
			before := f.delivered
			s.arm(sim.AfterSendDelivered, 1, sim.Break)
			for range 10 {
				if s.b.send(s.a.ap, 100, extra{}) == nil {
					t.Fatal(s.sendErr)
				}
			}
			s.run(200e9)
			if n := s.a.h.forgot; n != c.forgot || f.delivered-before != 10 {
				t.Errorf("%d peers forgotten, %d messages delivered; want %d and 10", n, f.delivered-before, c.forgot)
			}
			s.mend()
			for range 5 {
				s.b.send(s.a.ap, 100, extra{})
			}
			s.run(50e6)
			s.drain()
			if f.lost != c.lost || f.delivered-before != 15 {
				t.Errorf("%d delivered, %d lost; want 15 and %d", f.delivered-before, f.lost, c.lost)
			}
			s.finish()
		})
	}
}

// TestForgottenMeetsAnew binds a port again while the peer that had met its former owner is away.
// If the peer is forgotten, the next owner gets what the peer then sends, as after a restart. If
// not, the peer is told that the former owner is gone.
func TestForgottenMeetsAnew(t *testing.T) {
	for _, c := range []struct {
		name   string
		after  int64 // ForgetAfter
		nosock uint64
	}{
		{"forgotten", 100e9, 0},
		{"still known", 900e9, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScriptWith(t, 1, func(o *options) { o.forgetAfter = c.after })
			defer s.explain()
			f := s.b.flow(s.a.ap)
			s.b.send(s.a.ap, 100, extra{})
			s.drain() // b has met a
			s.arm(sim.AfterSendDelivered, 1, sim.Break)
			s.b.send(s.a.ap, 100, extra{})
			s.run(1e9)
			s.a.close()
			next := s.a.c.bind(s.a.ap.Port())
			s.run(200e9)
			s.mend()
			s.b.send(next.ap, 100, extra{})
			s.drain()
			if f.nosock != c.nosock {
				t.Errorf("%d messages found no socket, want %d", f.nosock, c.nosock)
			}
			s.b.send(next.ap, 100, extra{})
			s.drain()
			if f.taker != next {
				t.Error("the next owner of the port got nothing")
			}
			s.finish()
		})
	}
}
