package conn

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
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
	want := wire.Hello{Version: wire.HelloVersion, Features: wire.FeatureAtomics | wire.FeatureMasked | wire.FeatureAsk | wire.FeatureTraceparent, Instance: 10, MaxSend: 32 << 10, Credits: 64, ReadDepth: 16}
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
	s.want(m, msg.Lost)
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
	s.want(m, msg.Acked)
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
	s.want(late, msg.Cancelled)
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
