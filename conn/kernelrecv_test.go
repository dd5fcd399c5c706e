package conn

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// A message is one SEND per 4096 bytes, each with the header; the last one
// wakes the receiver.
func TestKernelFragments(t *testing.T) {
	for _, registered := range []bool{false, true} {
		for _, n := range []int{0, 1, 63, 4095, 4096, 4097, 8192, 8193, 40_000, 1 << 20} {
			t.Run(fmt.Sprint(n, registered), func(t *testing.T) {
				s := newKernel(t)
				m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, DstInc: 6, Data: make([]byte, n), DestCookie: 0x1000_0000_1234}
				for i := range m.Data {
					m.Data[i] = byte(i * 7)
				}
				if registered && n > 0 {
					m.LKey = s.dev.reg(m.Data)
				}
				s.c.Send(m)
				s.run()
				want := max(1, (n+kernelPiece-1)/kernelPiece)
				how := s.how
				f := s.kernelFrames()
				if len(f) != want {
					t.Fatalf("%d frames, want %d", len(f), want)
				}
				var all []byte
				for i, g := range f {
					if g.Seq != 100 || g.Len != uint32(n) || g.SPort != 3 || g.DPort != 4 || g.SrcInc != 0 || g.DstInc != 0 ||
						g.Credit != 0 || g.DestCookie() != m.DestCookie || g.Flags != wire.FlagAckRequired {
						t.Fatalf("frame %d: %+v", i, g.Header)
					}
					if last := i == want-1; last && how[i]&verbs.SendSolicited == 0 || !last && len(g.body) != kernelPiece {
						t.Fatalf("frame %d of %d: %d bytes, flags %v", i, want, len(g.body), how[i])
					}
					all = append(all, g.body...)
				}
				how = slices.DeleteFunc(how, func(x verbs.SendFlags) bool { return x&verbs.SendSolicited == 0 })
				if len(how) < want/kernelBatch {
					t.Errorf("%d of %d frames wake the kernel", len(how), want)
				}
				if !bytes.Equal(all, m.Data) {
					t.Error("the payload is not what was sent")
				}
				s.open(m)
				s.send(frame(wire.Header{Ack: 100}, nil))
				s.want(m, msg.Acked)
				if s.out != 1 { // the connection's own
					t.Errorf("%d send buffers in use", s.out)
				}
			})
		}
	}
}

func TestKernelSequences(t *testing.T) {
	s := newKernel(t)
	s.seq = 9
	s.send(s.kdata("10"))
	s.seq = 999
	s.send(s.kdata("1000")) // a gap
	s.seq = 9
	s.send(s.kdata("10 again", flags(wire.FlagRetransmitted)))
	if f := s.kernelFrames(); len(f) != 1 || f[0].Ack != 10 {
		t.Errorf("a duplicate is acked with its own number: %+v", f)
	}
	s.seq = 0
	s.send(s.kdata("1")) // another life
	s.send(s.kdata("2", flags(wire.FlagRetransmitted)))
	if got := strings.Join(s.delivered, " "); got != "10 1000 1 2" || s.c.Stats().RecvDropOldSeq != 1 {
		t.Errorf("delivered %q, %d duplicates", got, s.c.Stats().RecvDropOldSeq)
	}
	s.send(s.kdata("x", func(h *wire.Header) { h.Seq = 0 }))
	s.wantError(ErrProtocol)
}

// Nobody is told of a message that finds no socket, and a host that refuses one
// has lost it.
func TestKernelNoNotices(t *testing.T) {
	s := newKernel(t)
	s.verdict = func(h *wire.Header) Verdict { return map[uint16]Verdict{20: NoSocket, 21: Refused}[h.DPort] }
	s.send(s.kdata("a", port(20), flags(wire.FlagAckRequired)))
	s.send(s.kdata("b", port(21), flags(wire.FlagAckRequired)))
	s.send(s.kdata("c", port(21)))
	if f := s.kernelFrames(); len(f) != 2 || f[0].Ack != 1 || f[1].Ack != 2 || s.c.own.N != 0 {
		t.Errorf("%+v", f)
	}
	if st := s.c.Stats(); st.RecvDropNoSock != 1 || st.RecvRefused != 2 {
		t.Errorf("%+v", st)
	}
	// Nor of what is rdsd's alone.
	g := &msg.Msg{Internal: wire.TypeGrant, Data: make([]byte, wire.GrantLen)}
	s.c.Send(g)
	s.run()
	s.want(g, msg.Cancelled)
	if len(s.raw) != 0 {
		t.Error("a GRANT to a kernel")
	}
}

// A kernel may send before we have heard that the connection is established.
func TestKernelEarlyFrames(t *testing.T) {
	t.Run("passive", func(t *testing.T) {
		s := newScript(t, mayBeKernel)
		s.q = s.peer.newQP(64)
		s.seq = 0
		s.peer.dial(s.q, addrB, addrA, kernelPrivate())
		ev := s.dev.cm[0]
		s.dev.cm = nil
		s.c.HandleRequest(s.now, ev.Req, ev.Segment, ev.Private)
		est := s.dev.cm
		s.dev.cm = nil
		s.send(s.kdata("early", flags(wire.FlagAckRequired)))
		if !s.c.Ready() || len(s.delivered) != 1 {
			t.Fatalf("%v, delivered %q", s.c.State(), s.delivered)
		}
		s.dev.cm = est
		s.run()
		if !s.c.Ready() || len(s.ups) != 1 {
			t.Error("the event came too late")
		}
	})
	early := func(t *testing.T, private []byte, n int) *script {
		s := newScript(t, mayBeKernel)
		s.seq = 0
		s.msg("x")
		s.run()
		req := s.request()
		s.q = s.peer.newQP(64)
		s.peer.accept(req, s.q, private)
		est := s.dev.cm
		s.dev.cm = nil
		for range n {
			s.send(s.kdata("early"))
		}
		s.dev.cm = append(s.dev.cm, est...)
		s.run()
		return s
	}
	t.Run("active", func(t *testing.T) {
		s := early(t, kernelPrivate(), 3)
		if !s.c.Ready() || len(s.delivered) != 3 {
			t.Fatalf("%v, delivered %q: %v", s.c.State(), s.delivered, s.lastTrace)
		}
	})
	t.Run("too many", func(t *testing.T) {
		if s := early(t, kernelPrivate(), maxEarly+1); s.c.Ready() || !errors.Is(s.lastTrace, ErrProtocol) {
			t.Errorf("%v: %v", s.c.State(), s.lastTrace)
		}
	})
	t.Run("of an rdsd", func(t *testing.T) {
		s := early(t, wire.AppendPrivate(nil, &wire.Private{Src: addrB, Dst: addrA, Major: 3, Minor: 1, Ext: wire.ExtVersion}), 1)
		if s.c.Ready() || !errors.Is(s.lastTrace, ErrProtocol) {
			t.Errorf("%v: %v", s.c.State(), s.lastTrace)
		}
	})
}
