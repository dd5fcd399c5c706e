package sim

import (
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/verbs/sim"
)

// lossCases say exactly which notices a sender of datagrams gets. The random runs can only check
// bounds, because nobody knows what a dead daemon had accepted.
var lossCases = []struct {
	name         string
	do           func(*script)
	delivered    int // of ten messages and the one that meet sends
	lost, nosock uint64
}{
	{"break before delivery", func(s *script) {
		s.arm(sim.BeforeSendDelivered, 1, sim.Break)
		s.datagrams(10)
		s.run(50e6)
	}, 10, 0, 0},
	{"break after delivery", func(s *script) {
		s.arm(sim.AfterSendDelivered, 1, sim.Break)
		s.datagrams(10)
		s.run(50e6)
	}, 10, 0, 0},
	{"crash before delivery", func(s *script) {
		s.meet()
		s.arm(sim.BeforeSendDelivered, 1, sim.CrashResponder)
		s.datagrams(10)
		s.run(50e6)
	}, 1, 10, 0},
	{"crash after delivery, before the ack", func(s *script) {
		s.meet()
		s.arm(sim.AfterSendDelivered, 1, sim.CrashResponder)
		s.datagrams(10)
		s.run(50e6)
	}, 1, 10, 0},
	{"crash before they were sent", func(s *script) {
		s.disconnect()
		s.datagrams(10)
		s.run(1e6)
		s.hosts[1].crash()
		s.run(50e6)
	}, 10, 0, 0},
	{"restart, and nobody binds the port", func(s *script) {
		s.disconnect()
		s.datagrams(10)
		s.hosts[1].crash()
		s.opt.sockets = 0
		s.run(2e9)
	}, 0, 0, 10},
	{"close before they arrive", func(s *script) {
		s.meet()
		s.datagrams(10)
		s.b.close()
		s.run(50e6)
	}, 1, 0, 10},
	{"close and bind while they wait", func(s *script) {
		s.disconnect()
		s.datagrams(10)
		c, port := s.b.c, s.b.ap.Port()
		s.b.close()
		c.bind(port)
	}, 10, 0, 0},
	{"close and bind while they wait for the one that was met", func(s *script) {
		s.meet()
		s.disconnect()
		s.datagrams(10)
		c, port := s.b.c, s.b.ap.Port()
		s.b.close()
		c.bind(port)
	}, 1, 0, 10},
	{"cancel while they wait", func(s *script) {
		s.disconnect()
		s.datagrams(10)
		s.run(1e6)
		s.cancel(s.a.flow(s.b.ap))
		s.run(1e6)
	}, 0, 0, 0},
}

func (s *script) datagrams(k int) {
	s.t.Helper()
	for range k {
		if s.a.send(s.b.ap, 100, extra{}) == nil {
			s.t.Fatal(s.sendErr)
		}
	}
}

// meet sends a first message, so that the sender's daemon knows the destination. Later messages
// would wait for that.
func (s *script) meet() {
	s.datagrams(1)
	s.run(10e6)
}

// disconnect breaks the connection between the hosts. They cannot connect until mend.
func (s *script) disconnect() {
	engine.ResetPeers(s.a.h.e, s.b.ap.Addr(), nil, nil)
	s.cut()
	s.a.h.kick()
	s.run(10e6)
}

// TestLoss checks that each datagram is delivered or its sender gets the right notice.
func TestLoss(t *testing.T) {
	for _, c := range lossCases {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			defer s.explain()
			dst := s.b.ap
			c.do(s)
			s.mend()
			s.drain()
			f := s.a.flow(dst)
			if f.delivered != c.delivered || f.lost != c.lost || f.nosock != c.nosock {
				t.Errorf("%d delivered, %d lost, %d without a socket; want %d, %d, %d", f.delivered, f.lost, f.nosock, c.delivered, c.lost, c.nosock)
			}
			s.finish()
		})
	}
}
