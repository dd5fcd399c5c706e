package conn

import (
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// TestLanePrivateData: the private data's tos byte is the lane, in the request
// and in the reply, and both must agree.
func TestLanePrivateData(t *testing.T) {
	lane := func(c *Config) { c.Lane = 200 }
	private := func(tos uint8) []byte {
		return wire.AppendPrivate(nil, &wire.Private{Src: addrB, Dst: addrA, Major: 3, Minor: 1,
			MinorMask: wire.MinorMask, TOS: tos, Ext: wire.ExtVersion})
	}
	sent := func(t *testing.T, s *script, b []byte) {
		t.Helper()
		if p, err := wire.ParsePrivate(b, false); err != nil || p.TOS != 200 {
			t.Errorf("private data %+v, %v; want tos 200", p, err)
		}
	}
	t.Run("request", func(t *testing.T) {
		for _, tos := range []uint8{0, 199, 200} {
			s := newScript(t, lane)
			s.msg("x")
			s.run()
			sent(t, s, s.peer.cm[len(s.peer.cm)-1].Private)
			s.q = s.peer.newQP(64)
			s.peer.accept(s.request(), s.q, private(tos))
			s.run()
			if tos == 200 {
				if s.c.State() != Up {
					t.Errorf("state %v: %v", s.c.State(), s.lastTrace)
				}
				continue
			}
			s.wantError(ErrIncompatible)
		}
	})
	t.Run("reply", func(t *testing.T) {
		s := newScript(t, lane)
		s.q = s.peer.newQP(64)
		s.peer.dial(s.q, addrB, addrA, private(200))
		s.run()
		if s.c.State() != Up || len(s.peer.cm) != 1 || s.peer.cm[0].Type != verbs.CMEstablished {
			t.Fatalf("state %v, events %+v", s.c.State(), s.peer.cm)
		}
		sent(t, s, s.peer.cm[0].Private)
	})
}

// TestStaleInstance: of a peer that the host does not believe nothing counts,
// not even what it sent with its HELLO; and the Conn tries again at once.
func TestStaleInstance(t *testing.T) {
	s := newScript(t)
	s.believe = func(id uint64) bool { return id != 66 }
	m := s.msg("x")
	s.connect()
	s.post(frame(wire.Header{Flags: wire.FlagInternal, DPort: uint16(wire.TypeHello)},
		s.helloBody(func(h *wire.Hello) { h.Instance = 66 })))
	s.send(s.data("not to be believed"))
	if len(s.delivered) != 0 || len(s.ups) != 0 || s.c.Instance() != 0 {
		t.Errorf("delivered %q, ups %v, instance %d", s.delivered, s.ups, s.c.Instance())
	}
	if s.c.Stats().ProtocolErrors != 0 {
		t.Error("counted as a protocol error")
	}
	s.open(m)
	s.answer() // of the request made at once
	s.hello()
	if !s.c.Ready() || s.c.Instance() != 77 {
		t.Fatalf("%v, instance %d: %v", s.c.State(), s.c.Instance(), s.lastTrace)
	}
	if f := s.frames(); len(f) == 0 || string(f[len(f)-1].body) != "x" {
		t.Errorf("frames %+v", f)
	}
}

// TestNoticeToAnotherLife: the notice in the HELLO of a peer that knows only an
// earlier instance of ours is about messages that will not come; nothing waits
// for them.
func TestNoticeToAnotherLife(t *testing.T) {
	for inst, settled := range map[uint64]bool{9: true, 10: false} {
		s := newScript(t)
		s.up(func(h *wire.Hello) { h.Notice, h.AckInst = 900, inst })
		m := s.msg("x")
		s.run()
		s.send(frame(wire.Header{Ack: 100}, nil))
		if _, ok := s.done[m]; ok != settled {
			t.Errorf("notice to instance %d of 10: settled %v", inst, ok)
		}
	}
}

// TestWithdrawAnnounced: a control message that HELLO has announced is not
// withdrawn: the peer settles nothing before it.
func TestWithdrawAnnounced(t *testing.T) {
	s := newScript(t)
	m := &msg.Msg{Internal: wire.TypeRevoke, Data: make([]byte, 8)}
	s.c.Send(m)
	s.connect() // our HELLO is out, the peer's is not here
	if s.c.Withdraw(m) {
		t.Error("an announced message was withdrawn")
	}
	s.hello()
	f := s.frames()
	h, err := wire.ParseHello(f[0].body)
	if last := f[len(f)-1]; err != nil || h.Notice == 0 || last.Seq != h.Notice {
		t.Errorf("HELLO's notice %d, %v; then sequence %d", h.Notice, err, last.Seq)
	}
	s = newScript(t)
	s.c.Send(m)
	if !s.c.Withdraw(m) || s.done[m] != msg.Cancelled {
		t.Errorf("a message that nobody knows of: withdrawn %v", s.done)
	}
}
