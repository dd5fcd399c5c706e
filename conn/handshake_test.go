package conn

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

func TestHelloGatesEverything(t *testing.T) {
	s := newScript(t)
	s.msg("first")
	s.connect()
	f := s.frames()
	if len(f) != 1 || f[0].Flags != wire.FlagInternal || f[0].DPort != 1 || f[0].Seq != 0 || f[0].SPort != 0 {
		t.Fatalf("before the peer's HELLO: %+v", f)
	}
	h, err := wire.ParseHello(f[0].body)
	want := wire.Hello{Version: wire.HelloVersion, Features: wire.FeatureAtomics | wire.FeatureMasked, Instance: 10, MaxSend: 32 << 10, Credits: 64, ReadDepth: 16}
	if err != nil || h != want {
		t.Errorf("HELLO %+v, %v", h, err)
	}
	if s.c.Ready() || len(s.ups) != 0 {
		t.Error("ready without the peer's HELLO")
	}
	s.hello()
	f = s.frames()
	if len(f) != 1 || string(f[0].body) != "first" || f[0].Seq != 100 {
		t.Errorf("after HELLO: %+v", f)
	}
	if len(s.ups) != 1 || s.ups[0] {
		t.Errorf("PeerUp %v", s.ups)
	}
}

// The passive side may receive HELLO before its Established event.
func TestHelloBeforeEstablished(t *testing.T) {
	s := newScript(t)
	s.msg("x")
	s.c.Flush(s.now)
	req := s.request()
	s.q = s.peer.newQP(64)
	s.peer.accept(req, s.q, s.private())
	ev := s.dev.cm[0]
	s.dev.cm = nil
	s.post(frame(wire.Header{Flags: wire.FlagInternal, DPort: 1}, s.helloBody()))
	s.run()
	if s.c.State() != Connecting {
		t.Fatalf("state %v", s.c.State())
	}
	s.c.HandleCM(s.now, &ev)
	s.run()
	if f := s.frames(); !s.c.Ready() || len(f) != 2 || string(f[1].body) != "x" {
		t.Errorf("%v, frames %+v", s.c.State(), f)
	}
}

func TestPrivateDataRejected(t *testing.T) {
	good := wire.Private{Src: addrB, Dst: addrA, Major: 3, Minor: 1, MinorMask: 3, Ext: wire.ExtVersion}
	tests := []struct {
		name   string
		change func(*wire.Private)
		text   string
	}{
		{"major", func(p *wire.Private) { p.Major = 4 }, "protocol 4.1"},
		{"minor", func(p *wire.Private) { p.Minor = 0 }, "protocol 3.0"},
		{"old kernel", func(p *wire.Private) { p.Ext, p.Minor = 0, 0 }, "protocol 3.0"},
		{"kernel of no common version", func(p *wire.Private) { p.Ext, p.Major, p.MinorMask = 0, 4, 0xfffc }, "protocol 4.1"},
		{"extension", func(p *wire.Private) { p.Ext = 1 }, "extension version 1, this one 2"},
		{"source", func(p *wire.Private) { p.Src = netip.MustParseAddr("127.0.0.9") }, "claims to be 127.0.0.9"},
		{"destination", func(p *wire.Private) { p.Dst = netip.MustParseAddr("127.0.0.9") }, "means 127.0.0.9"},
		{"lane", func(p *wire.Private) { p.TOS = 3 }, "lane 3"},
		{"short", nil, "private data of 10 bytes"},
	}
	for _, c := range tests {
		var b []byte
		if c.change == nil {
			b = make([]byte, 10)
		} else {
			p := good
			c.change(&p)
			b = wire.AppendPrivate(nil, &p)
		}
		t.Run("request "+c.name, func(t *testing.T) {
			s := newScript(t)
			q := s.peer.newQP(64)
			s.peer.dial(q, addrB, addrA, b)
			s.run()
			if s.c.State() != Down || len(s.peer.cm) != 1 || s.peer.cm[0].Type != verbs.CMRejected ||
				!bytes.Equal(s.peer.cm[0].Private, []byte{1, 0, 0, 0, 'R', 'd', wire.ExtVersion, 0}) {
				t.Errorf("state %v, events %+v", s.c.State(), s.peer.cm)
			}
			if !errors.Is(s.lastTrace, ErrIncompatible) || !strings.Contains(s.lastTrace.Error(), c.text) {
				t.Errorf("traced %v", s.lastTrace)
			}
		})
		t.Run("reply "+c.name, func(t *testing.T) {
			s := newScript(t)
			s.msg("x")
			s.run()
			q := s.peer.newQP(64)
			s.peer.accept(s.request(), q, b)
			s.run()
			s.wantError(ErrIncompatible)
			if s.c.NextTimeout() == 0 {
				t.Error("no retry planned")
			}
		})
	}
}

func TestPrivateDataSent(t *testing.T) {
	s := newScript(t)
	s.up()
	s.send(s.data("a"))
	s.msg("x")
	s.q.toErr(true)
	s.run()
	p, err := wire.ParsePrivate(s.peer.cm[len(s.peer.cm)-1].Private, false)
	want := wire.Private{Src: addrA, Dst: addrB, Major: 3, Minor: 1, MinorMask: 3, AckSeq: s.seq, Ext: wire.ExtVersion}
	if err != nil || p != want {
		t.Errorf("%+v, %v; want %+v", p, err, want)
	}
}

func TestBadHello(t *testing.T) {
	body := func(change func(*wire.Hello)) []byte {
		h := wire.Hello{Version: wire.HelloVersion, Instance: 77, MaxSend: 16 << 10, Credits: 64}
		change(&h)
		return frame(wire.Header{Flags: wire.FlagInternal, DPort: 1}, h.Append(nil))
	}
	for name, b := range map[string][]byte{
		"version":    body(func(h *wire.Hello) { h.Version = 1 }),
		"instance":   body(func(h *wire.Hello) { h.Instance = 0 }),
		"max send":   body(func(h *wire.Hello) { h.MaxSend = wire.MinMaxSend - 1 }),
		"no credits": body(func(h *wire.Hello) { h.Credits = MinCredits - 1 }),
		"credits":    body(func(h *wire.Hello) { h.Credits = maxCredits + 1 }),
		"ack":        body(func(h *wire.Hello) { h.Ack, h.AckInst = 100, 10 }),
		"a datagram": frame(wire.Header{Seq: 1, SPort: 1, DPort: 2}, nil),
		"sequenced":  frame(wire.Header{Seq: 1, Flags: wire.FlagInternal, DPort: 1}, make([]byte, wire.HelloLen)),
		"short":      frame(wire.Header{Flags: wire.FlagInternal, DPort: 1}, make([]byte, 8)),
		"length":     frame(wire.Header{Len: 8, Flags: wire.FlagInternal, DPort: 1}, make([]byte, wire.HelloLen)),
		"nothing":    {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.connect()
			s.raw = nil
			if len(b) == 0 {
				s.q.PostSend([]verbs.SendWR{{Op: verbs.OpSend}})
				s.run()
			} else {
				s.send(b)
			}
			s.wantError(ErrProtocol)
			if s.c.Stats().ProtocolErrors != 1 || len(s.ups) != 0 || s.c.State() != Down {
				t.Errorf("%+v, ups %v, %v", s.c.Stats(), s.ups, s.c.State())
			}
		})
	}
}

func TestHandshakeTimeout(t *testing.T) {
	for name, established := range map[string]bool{"no answer": false, "no HELLO": true} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.msg("x")
			s.run()
			start := s.now
			if established {
				s.answer()
			}
			if s.c.NextTimeout() != start+5e9 {
				t.Fatalf("times out at %d, want %d", s.c.NextTimeout(), start+5e9)
			}
			s.now += 5e9 - 1
			s.c.Tick(s.now)
			if s.c.State() == Down || s.c.State() == Error {
				t.Fatal("too early")
			}
			s.now++
			s.c.Tick(s.now)
			if !errors.Is(s.c.Info().LastError, ErrTimeout) {
				t.Errorf("error %v", s.c.Info().LastError)
			}
			s.run()
			if established && (len(s.downs) != 1 || !errors.Is(s.downs[0], ErrTimeout)) {
				t.Errorf("PeerDown %v", s.downs)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Rand = func() uint64 { return 1<<63 - 1 } })
	s.up()
	s.msg("x")
	s.run()
	s.q.toErr(true)
	s.run()
	if s.c.State() != Connecting {
		t.Fatalf("after a drop: %v, the first retry is at once", s.c.State())
	}
	ceiling := int64(1e6)
	for i := range 14 {
		s.peer.rejectReq(s.request(), wire.Rejected())
		s.run()
		if s.c.State() != Down || !errors.Is(s.c.Info().LastError, ErrRejected) {
			t.Fatalf("try %d: %v, %v", i, s.c.State(), s.c.Info().LastError)
		}
		if d, want := s.c.NextTimeout()-s.now, 1+(1<<63-1)%ceiling; d != want {
			t.Fatalf("try %d: waits %d, want %d", i, d, want)
		}
		if s.c.NeedFlush() {
			t.Fatal("Flush would not wait")
		}
		ceiling = min(2*ceiling, 1e9)
		s.now = s.c.NextTimeout()
		s.c.Tick(s.now)
	}
	if s.c.State() != Connecting {
		t.Fatalf("%v", s.c.State())
	}
	s.answer()
	s.hello()
	s.q.toErr(true)
	s.run()
	if s.c.State() != Connecting {
		t.Errorf("after another drop: %v, back-off was not reset", s.c.State())
	}
}

func TestIdleStaysDown(t *testing.T) {
	s := newScript(t).up()
	s.q.toErr(true)
	s.run()
	if s.c.State() != Down || s.c.NextTimeout() != 0 || s.c.NeedFlush() {
		t.Errorf("idle: %v, timer %d", s.c.State(), s.c.NextTimeout())
	}
	if len(s.downs) != 1 || !errors.Is(s.downs[0], ErrDisconnected) {
		t.Errorf("PeerDown %v", s.downs)
	}
	s.msg("x")
	s.run()
	if s.c.State() != Connecting {
		t.Errorf("a send on Down: %v", s.c.State())
	}
}

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
	s.c.HandleRequest(s.now, ev.Req, ev.Private)
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
		s.c.HandleRequest(s.now, ev.Req, ev.Private)
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

func TestRestartedPeer(t *testing.T) {
	s := newScript(t).up()
	m := s.msg("sent")
	s.run()
	s.q.toErr(true)
	s.run()
	later := s.msg("not sent")
	s.dropRequests()
	s.raw = nil
	s.up(func(h *wire.Hello) { h.Instance = 78; h.AckInst, h.Ack = 10, 50 })
	s.want(m, Lost)
	s.open(later)
	if f := s.frames(); len(f) != 1 || string(f[0].body) != "not sent" || f[0].Flags&wire.FlagRetransmitted != 0 {
		t.Errorf("frames %+v", f)
	}
	if len(s.ups) != 2 || !s.ups[1] {
		t.Errorf("PeerUp %v", s.ups)
	}
	// Its sequences may start anywhere.
	s.seq = 3
	s.send(s.data("new life"))
	if len(s.delivered) != 1 || s.c.State() != Up {
		t.Errorf("delivered %q, %v", s.delivered, s.c.Info().LastError)
	}
}

// An ack for another life of ours acks nothing.
func TestAckOfAnotherLife(t *testing.T) {
	s := newScript(t).up()
	m := s.msg("x")
	s.run()
	s.again(func(h *wire.Hello) { h.Ack, h.AckInst = 5000, 9 })
	s.open(m)
	if f := s.frames(); len(f) != 1 || f[0].Seq != 100 {
		t.Errorf("frames %+v", f)
	}
	s.again(func(h *wire.Hello) { h.Ack, h.AckInst = 100, 10 })
	s.want(m, Acked)
}

func TestResetAndClose(t *testing.T) {
	s := newScript(t)
	why := errors.New("operator")
	s.msg("x")
	s.run()
	s.c.Reset(s.now, why) // while connecting
	if len(s.downs) != 1 || s.downs[0] != why {
		t.Errorf("PeerDown %v", s.downs)
	}
	s.dropRequests()
	s.up()
	s.c.Reset(s.now, why)
	s.run()
	if len(s.downs) != 2 || s.downs[1] != why || s.c.State() != Connecting {
		t.Errorf("PeerDown %v, %v", s.downs, s.c.State())
	}
	s.c.Close(s.now)
	late := s.msg("late")
	s.want(late, Cancelled)
	if s.c.State() != Down || s.c.NeedFlush() || s.c.NextTimeout() != 0 || s.out != 0 {
		t.Errorf("%v, timer %d, %d buffers", s.c.State(), s.c.NextTimeout(), s.out)
	}
	q := s.peer.newQP(64)
	s.peer.cm = nil
	s.peer.dial(q, addrB, addrA, s.private())
	s.run()
	if len(s.peer.cm) != 1 || s.peer.cm[0].Type != verbs.CMRejected {
		t.Errorf("a closed Conn answered %+v", s.peer.cm)
	}
}

func TestStates(t *testing.T) {
	c := New(testConfig(addrA, addrB, 1), nil)
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "DOWN to UP") {
			t.Errorf("recovered %v", r)
		}
	}()
	c.setState(Up)
}

func TestNoBufferForConnecting(t *testing.T) {
	s := newScript(t)
	bufs := s.bufs
	s.bufs = nil
	s.msg("x")
	s.c.Flush(s.now)
	if s.c.State() != Down || !errors.Is(s.c.Info().LastError, ErrNoBuffer) || s.c.NextTimeout() == 0 {
		t.Fatalf("%v, %v, retry at %d", s.c.State(), s.c.Info().LastError, s.c.NextTimeout())
	}
	s.bufs = bufs
	s.now = s.c.NextTimeout()
	s.c.Tick(s.now)
	if s.c.State() != Connecting {
		t.Errorf("%v", s.c.State())
	}
}

// TestRejectedByAnotherVersion: who was rejected by a daemon of another
// extension version learns both versions.
func TestRejectedByAnotherVersion(t *testing.T) {
	s := newScript(t)
	s.msg("x")
	s.run()
	s.peer.rejectReq(s.request(), (&wire.Reject{Code: wire.RejectIncompat, Ext: 1}).Append(nil))
	s.run()
	err := s.c.Info().LastError
	if !errors.Is(err, ErrRejected) || !errors.Is(err, ErrIncompatible) || !strings.Contains(err.Error(), "extension version 1, this one 2") {
		t.Errorf("%v", err)
	}
}
