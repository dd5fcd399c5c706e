package conn

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

func TestCrossingConnects(t *testing.T) {
	// 127.0.0.1 is the smaller address: its own request wins.
	s := newScript(t)
	s.msg("x")
	s.run()
	q := s.peer.newQP(64)
	s.peer.dial(q, addrB, addrA, s.private())
	s.run()
	last := s.peer.cm[len(s.peer.cm)-1]
	if last.Type != verbs.CMRejected || last.QP != q || s.c.State() != Connecting {
		t.Fatalf("smaller address: %v, peer got %+v", s.c.State(), last)
	}
	if r, ok := wire.ParseReject(last.Private); !ok || !r.Crossed {
		t.Errorf("the rejection says %+v", r)
	}
	s.peer.cm = s.peer.cm[:len(s.peer.cm)-1]
	s.answer()
	s.hello()
	if !s.c.Ready() || s.c.Stats().ConnectRaced != 1 {
		t.Errorf("%v, raced %d", s.c.State(), s.c.Stats().ConnectRaced)
	}

	// The larger one gives up its own.
	l := newScript(t, func(c *Config) { c.Local, c.Remote = addrB, addrA })
	l.dev.net.hosts = map[netip.Addr]*fakeHost{addrB: l.dev, addrA: l.peer}
	l.msg("x")
	l.run()
	q = l.peer.newQP(64)
	l.peer.dial(q, addrA, addrB, wire.AppendPrivate(nil, &wire.Private{Src: addrA, Dst: addrB, Major: 3, Minor: 1, Ext: wire.ExtVersion}))
	l.q = q
	l.run()
	l.hello()
	if !l.c.Ready() || len(l.dev.qps) != 1 || len(l.downs) != 0 {
		t.Errorf("larger address: %v, %d queue pairs, down %v", l.c.State(), len(l.dev.qps), l.downs)
	}
	// The event of the attempt it gave up changes nothing.
	old := l.dev.newQP(64)
	l.c.HandleCM(l.now, &verbs.CMEvent{Type: verbs.CMRejected, QP: old})
	if !l.c.Ready() {
		t.Error("an old attempt's event broke the connection")
	}
}

func TestRequestWhileUp(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	m := s.msg("in flight")
	s.run()
	q := s.peer.newQP(64)
	s.peer.dial(q, addrB, addrA, s.private())
	ev := s.dev.cm[0]
	s.dev.cm = nil
	s.c.HandleRequest(s.now, ev.Req, ev.Segment, ev.Private)
	if s.c.State() != Error {
		t.Fatalf("%v: the old connection drains first", s.c.State())
	}
	s.hold = false
	s.q = q
	s.run()
	if s.c.State() != Up || len(s.downs) != 1 || !errors.Is(s.downs[0], ErrReplaced) || s.c.Stats().ListenClosedStale != 1 {
		t.Fatalf("%v, down %v", s.c.State(), s.downs)
	}
	s.raw = nil
	s.hello()
	f := s.frames()
	if len(f) != 1 || f[0].Seq != 100 || f[0].Flags&wire.FlagRetransmitted == 0 {
		t.Errorf("retransmission: %+v", f)
	}
	s.open(m)
}

// Two requests while draining: the older one is answered no.
func TestSecondRequestWhileDraining(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	s.msg("x")
	s.run()
	var qs []*fakeQP
	for range 2 {
		q := s.peer.newQP(64)
		qs = append(qs, q)
		s.peer.dial(q, addrB, addrA, s.private())
		ev := s.dev.cm[len(s.dev.cm)-1]
		s.c.HandleRequest(s.now, ev.Req, ev.Segment, ev.Private)
		s.dev.cm = nil
	}
	s.hold = false
	s.run()
	rejected := false
	for _, ev := range s.peer.cm {
		rejected = rejected || ev.Type == verbs.CMRejected && ev.QP == qs[0]
	}
	if !rejected || !qs[1].up {
		t.Errorf("rejected %v, second up %v", rejected, qs[1].up)
	}
}

// TestLateCrossing: a request that crossed ours may arrive when ours is up already, because its
// handshake took longer. It does not end the connection. One that arrives later does.
func TestLateCrossing(t *testing.T) {
	s := newScript(t)
	s.msg("x")
	s.run()
	s.answer()
	s.hello()
	if !s.c.Ready() {
		t.Fatal(s.c.State())
	}
	for _, late := range []bool{false, true} {
		q := s.peer.newQP(64)
		s.peer.dial(q, addrB, addrA, s.private())
		ev := s.dev.cm[0]
		s.dev.cm = nil
		if late {
			s.now += crossTime
		} else {
			s.now += crossTime - 1
		}
		s.c.HandleRequest(s.now, ev.Req, ev.Segment, ev.Private)
		if replaced := s.c.Stats().ListenClosedStale == 1; replaced != late || s.c.Ready() == late {
			t.Fatalf("late %v: replaced %v, %v", late, replaced, s.c.State())
		}
		if last := s.peer.cm[len(s.peer.cm)-1]; !late {
			if r, ok := wire.ParseReject(last.Private); last.QP != q || !ok || !r.Crossed {
				t.Errorf("the peer got %+v", last)
			}
		}
		s.now = s.c.link.readyAt
	}
}
