package conn

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

func TestKernelHandshake(t *testing.T) {
	// Between the request's sides everything is as between kernels: the bytes
	// are those of conn/wire/testdata/kernel-ib.txt but for the addresses.
	const reply = "7f000001" + "7f000002" + "03010003" + "00000000" + "0000000000000000" + "00000000" + "00000000"
	for name, change := range map[string]func(*wire.Private){
		"3.1": func(*wire.Private) {},
		"4.1": func(p *wire.Private) { p.Major = 4 },
		"4.0": func(p *wire.Private) { p.Major, p.Minor, p.MinorMask = 4, 0, 1 },
	} {
		t.Run("request "+name, func(t *testing.T) {
			s := newScript(t, mayBeKernel)
			m := s.msg("x")
			s.kernelConnect(change)
			s.open(m)
			var est verbs.CMEvent
			for _, ev := range s.peer.cm {
				if ev.Type == verbs.CMEstablished {
					est = ev
				}
			}
			if got := hex.EncodeToString(est.Private); got != reply {
				t.Errorf("reply %s, want %s", got, reply)
			}
			checkKernelMap(t, s)
			if f := s.kernelFrames(); len(f) != 1 || string(f[0].body) != "x" || f[0].Seq != 100 {
				t.Errorf("frames %+v", f)
			}
		})
		t.Run("reply "+name, func(t *testing.T) {
			s := newScript(t, mayBeKernel)
			s.msg("x")
			s.run()
			req := s.request()
			s.q = s.peer.newQP(64)
			s.peer.accept(req, s.q, kernelPrivate(change))
			s.run()
			if !s.c.Ready() || !s.c.Kernel() || s.c.Instance() != KernelInstance || !s.c.Info().Kernel {
				t.Fatalf("%v: %v", s.c.State(), s.lastTrace)
			}
			checkKernelMap(t, s)
			if f := s.kernelFrames(); len(f) != 1 || string(f[0].body) != "x" {
				t.Errorf("frames %+v", f)
			}
		})
	}
}

// checkKernelMap wants the whole map first, in the two frames of the capture.
func checkKernelMap(t *testing.T, s *script) {
	t.Helper()
	if len(s.raw) < 2 || len(s.raw[0]) != kernelFrame || len(s.raw[1]) != kernelFrame {
		t.Fatalf("%d SENDs, the first ones are not a map", len(s.raw))
	}
	const header = "000000000000000000000000000000000000200000000000010000000000deff00000000000000000000000000000000"
	for i, how := range []verbs.SendFlags{0, verbs.SendSolicited} {
		if got := hex.EncodeToString(s.raw[i][:wire.HeaderLen]); got != header {
			t.Errorf("half %d of the map: header %s, a kernel's is %s", i, got, header)
		}
		if s.how[i]&verbs.SendSolicited != how {
			t.Errorf("half %d of the map: flags %v", i, s.how[i])
		}
	}
}

// Many messages, more than a batch, in order and one SEND each.
func TestKernelMany(t *testing.T) {
	s := newKernel(t)
	for i := range 300 {
		m := s.msg(strings.Repeat(string(rune('a'+i%26)), i*17%5000))
		m.Anybody = i%2 == 0 // as the kernel's own messages are
	}
	s.run()
	seq, n := uint64(99), 0
	for _, g := range s.kernelFrames() {
		if g.Anybody() {
			t.Fatalf("message %d has rdsd's extension header", g.Seq)
		}
		if g.Seq != seq {
			if seq++; g.Seq != seq {
				t.Fatalf("sequence %d, want %d", g.Seq, seq)
			}
			n++
			if asks := g.Flags&wire.FlagAckRequired != 0; asks != ((n-1)%9 == 0) {
				t.Errorf("message %d asks %v", n, asks)
			}
		}
	}
	if n != 300 {
		t.Errorf("%d messages", n)
	}
}

func TestKernelAcks(t *testing.T) {
	s := newKernel(t)
	// Without being asked: only after a while.
	s.send(s.kdata("a"))
	if f := s.kernelFrames(); len(f) != 0 || len(s.delivered) != 1 {
		t.Fatalf("%+v", f)
	}
	s.send(s.kdata("b", flags(wire.FlagAckRequired)))
	if want := hex.EncodeToString(frame(wire.Header{Ack: 2}, nil)); len(s.raw) != 1 || hex.EncodeToString(s.raw[0]) != want ||
		s.how[0]&verbs.SendSolicited == 0 {
		t.Fatalf("%x, want one ack frame %s", s.raw, want)
	}
	s.skip()
	s.send(s.kdata("c"))
	s.now = s.c.NextTimeout()
	s.c.Tick(s.now)
	s.run()
	if f := s.kernelFrames(); len(f) != 1 || f[0].Ack != 3 {
		t.Errorf("%+v", f)
	}
	s.send(s.kdata("d"))
	s.msg("x")
	s.run()
	if f := s.kernelFrames(); len(f) != 1 || f[0].Ack != 4 || string(f[0].body) != "x" {
		t.Errorf("%+v", f)
	}
	// What was received on an earlier connection is not acked on a new one: a
	// kernel that started anew would take it for its own messages.
	s.send(frame(wire.Header{Ack: 100}, nil))
	s.kernelAgain()
	s.msg("y")
	s.run()
	if f := s.kernelFrames(); len(f) != 1 || f[0].Ack != 0 {
		t.Errorf("%+v", f)
	}
}

// What nobody has asked to be acked asks when it has waited.
func TestKernelPrompt(t *testing.T) {
	s := newKernel(t)
	a := s.msg("a")
	s.run()
	if s.c.NextTimeout() != 0 {
		t.Error("a timer, and the message has asked")
	}
	s.send(frame(wire.Header{Ack: 100}, nil))
	s.want(a, msg.Acked)
	b := s.msg("b")
	s.run()
	if f := s.kernelFrames(); len(f) != 2 || f[1].Flags != 0 {
		t.Fatalf("%+v", f)
	}
	due := s.c.NextTimeout()
	if due != s.now+promptDelay*1e6 {
		t.Fatalf("next timeout %d, now %d", due, s.now)
	}
	s.now = due
	s.c.Tick(s.now)
	s.run()
	f := s.kernelFrames()
	if len(f) != 1 || f[0].SPort != 0 || f[0].DPort != 0 || len(f[0].body) != 1 || f[0].Flags != wire.FlagAckRequired || f[0].Seq != 102 {
		t.Fatalf("%+v", f)
	}
	if s.c.NextTimeout() != 0 {
		t.Error("asks again")
	}
	s.send(frame(wire.Header{Ack: 102}, nil))
	s.want(b, msg.Acked)
	if s.c.own.N != 0 || s.c.Info().Unacked != 0 {
		t.Errorf("%d own messages left", s.c.own.N)
	}
}

func TestKernelReconnect(t *testing.T) {
	s := newKernel(t)
	a, b, c := s.msg("a"), s.msg("b"), s.msg("c")
	s.run()
	s.send(s.kdata("x"))
	s.send(frame(wire.Header{Ack: 100}, nil))
	s.want(a, msg.Acked)
	s.kernelAgain()
	f := s.kernelFrames()
	if len(f) != 2 || string(f[0].body) != "b" || string(f[1].body) != "c" || f[0].Seq != 101 ||
		f[0].Flags != wire.FlagAckRequired|wire.FlagRetransmitted || f[1].Flags != f[0].Flags {
		t.Errorf("sent again: %+v", f)
	}
	if !slices.Equal(s.ups, []bool{false, false}) {
		t.Errorf("PeerUp %v", s.ups)
	}
	s.open(b, c)
	// ack_seq, of who says it, frees what it covers.
	s.kernelAgain(func(p *wire.Private) { p.AckSeq = 101 })
	s.want(b, msg.Acked)
	if f = s.kernelFrames(); len(f) != 1 || f[0].Seq != 102 {
		t.Errorf("%+v", f)
	}
	// One beyond all that was sent is of an earlier life of ours.
	s.kernelAgain(func(p *wire.Private) { p.AckSeq = 5000 })
	s.open(c)
	s.send(frame(wire.Header{Ack: 102}, nil))
	s.want(c, msg.Acked)
}

func TestKernelCongestion(t *testing.T) {
	s := newKernel(t)
	var m cong.Map
	m.Set(9)
	b := make([]byte, cong.Len)
	m.Put(b)
	h := wire.Header{Flags: wire.FlagCong, Len: cong.Len}
	s.send(frame(h, b[:kernelPiece]))
	if s.congs != 0 {
		t.Error("half a map counts")
	}
	s.send(frame(wire.Header{Ack: 99}, nil)) // acks may come between
	s.send(frame(h, b[kernelPiece:]))
	if s.congs != 1 || !s.c.RemoteCong().Test(9) || s.c.Stats().CongUpdateReceived != 1 {
		t.Errorf("%d updates", s.congs)
	}
	// A ping from a port that is congested there is not answered, others are.
	s.send(s.kdata("", port(0), func(h *wire.Header) { h.SPort = 9 }))
	s.send(s.kdata("payload", port(0), func(h *wire.Header) { h.SPort = 8 }))
	if f := s.kernelFrames(); len(f) != 1 || f[0].SPort != 0 || f[0].DPort != 8 || f[0].Len != 0 || f[0].Seq == 0 {
		t.Errorf("pongs %+v", f)
	}
	var own cong.Map
	own.Set(0x1234)
	s.c.QueueCong(&own)
	s.run()
	got := cong.Map{}
	if len(s.raw) != 2 || got.Load(append(append([]byte(nil), s.raw[0][48:]...), s.raw[1][48:]...), nil) != nil || !got.Test(0x1234) {
		t.Error("our map did not arrive")
	}
}

// Flags that mean something between two rdsd mean nothing here; extension
// headers have 16 bytes.
func TestKernelHeaders(t *testing.T) {
	s := newKernel(t)
	s.send(s.kdata("a", flags(wire.FlagSilent|wire.FlagInternal|wire.FlagResume|0x88)))
	s.send(s.kdata("b", func(h *wire.Header) { // RDMA_BYTES, then RDMA, as newer kernels send them
		copy(h.Ext[:], []byte{4, 0, 0, 16, 0, 1, 0, 0, 0, 2, 0xca, 0xfe})
		h.DstInc = 0xbabe0000
	}))
	s.send(s.kdata("c", func(h *wire.Header) { h.SetExtDest(0x77_0000_0042); h.DstInc = 0xffffffff }))
	if strings.Join(s.delivered, "") != "abc" {
		t.Fatalf("delivered %q: %v", s.delivered, s.lastTrace)
	}
	for i, h := range s.headers {
		if h.Flags != 0 || h.SrcInc != 0 || h.DstInc != 0 {
			t.Errorf("%d: %+v", i, h)
		}
	}
	if x := s.headers[1].Exts(); x.RDMA != 1 || x.RDMAKeys[0] != 0xcafebabe {
		t.Errorf("RDMA %+v", x)
	}
	if c := s.headers[2].DestCookie(); c != 0x77_0000_0042 {
		t.Errorf("cookie %#x", c)
	}
}

// While ours is under way a kernel rejects it, so its own has to get through;
// when we are connected it has lost the connection.
func TestKernelCrossing(t *testing.T) {
	s := newScript(t, mayBeKernel) // whose request would win between two rdsd
	s.msg("x")
	s.run()
	for i := range 2 {
		s.peer.dial(s.peer.newQP(64), addrB, addrA, kernelPrivate())
		s.run()
		if !s.c.Ready() || s.c.Stats().ConnectRaced != 1 || s.c.Stats().ListenClosedStale != uint64(i) || len(s.ups) != i+1 {
			t.Errorf("request %d: %v, up %v, %+v", i, s.c.State(), s.ups, s.c.Stats())
		}
	}
}

// The other software at an address is a restart.
func TestKernelAfterDaemon(t *testing.T) {
	s := newScript(t, placed, mayBeKernel).up()
	sent := s.msg("sent")
	s.run()
	s.hold = true
	late := s.msg("late")
	g := &msg.Msg{Internal: wire.TypeRevoke, Data: make([]byte, wire.RevokeLen)}
	s.q.toErr(true)
	s.c.Send(g)
	s.run()
	s.hold = false
	s.dropRequests()
	s.skip()
	s.kernelConnect()
	s.want(sent, msg.Lost)
	s.want(g, msg.Cancelled)
	if f := s.kernelFrames(); len(f) != 1 || string(f[0].body) != "late" {
		t.Errorf("%+v", f)
	}
	s.open(late)
	s.again(func(h *wire.Hello) { h.AckInst = 0 })
	s.want(late, msg.Lost)
	if !slices.Equal(s.ups, []bool{false, true, true}) {
		t.Errorf("PeerUp %v", s.ups)
	}
}

// An internal message that the host sends while a kernel comes up is not for the
// kernel, whatever up-call it is sent from.
func TestKernelInternalFromUpcall(t *testing.T) {
	revoke := func() *msg.Msg { return &msg.Msg{Internal: wire.TypeRevoke, Data: make([]byte, wire.RevokeLen)} }
	for _, c := range []struct {
		name string
		have func(s *script, send func())
	}{
		{"MsgDone of a posted one", func(s *script, send func()) {
			s.hold = true
			s.c.Send(revoke())
			s.run()
			s.onDone = send
		}},
		{"MsgDone of a queued one", func(s *script, send func()) {
			s.q.toErr(true)
			s.c.Send(revoke())
			s.onDone = send
		}},
		{"Instance", func(s *script, send func()) { s.believe = func(uint64) bool { send(); return true } }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, placed, mayBeKernel).up()
			var late *msg.Msg
			c.have(s, func() {
				if late == nil {
					late = revoke()
					s.c.Send(late)
				}
			})
			s.q.toErr(true)
			s.run()
			s.hold = false
			s.dropRequests()
			s.skip()
			s.kernelConnect()
			s.run()
			if late == nil {
				t.Fatal("nothing was sent")
			}
			s.want(late, msg.Cancelled)
			if f := s.kernelFrames(); len(f) != 0 {
				t.Errorf("sent to the kernel: %+v", f)
			}
		})
	}
}

// A peer that says it is a kernel is one only where the configuration says that it
// may be: what it sends cannot be refused.
func TestKernelNotConfigured(t *testing.T) {
	s := newScript(t, placed)
	s.peer.dial(s.peer.newQP(64), addrB, addrA, kernelPrivate())
	s.run()
	if s.c.State() != Down || s.c.Kernel() || !errors.Is(s.lastTrace, ErrKernel) {
		t.Errorf("its request: %v, kernel %v, %v", s.c.State(), s.c.Kernel(), s.lastTrace)
	}
	s.c.Send(s.msg("x"))
	s.run()
	s.peer.accept(s.request(), s.peer.newQP(64), kernelPrivate())
	s.run()
	if s.c.State() == Up || s.c.Kernel() || !errors.Is(s.c.Info().LastError, ErrKernel) {
		t.Errorf("its reply: %v, kernel %v, %v", s.c.State(), s.c.Kernel(), s.c.Info().LastError)
	}
}
