package conn

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// placed makes the device one whose completions mean that the peer has it.
func placed(c *Config) { c.Attr.Caps |= verbs.CapPlacedCQ }

func kernelPrivate(change ...func(*wire.Private)) []byte {
	p := wire.Private{Src: addrB, Dst: addrA, Major: 3, Minor: 1, MinorMask: wire.MinorMask}
	for _, f := range change {
		f(&p)
	}
	return wire.AppendPrivate(nil, &p)
}

func mayBeKernel(c *Config) { c.Kernel = true }

// kernel is a script whose peer is a kernel that has connected, and whose map
// is here. What the Conn has sent so far is in raw.
func newKernel(t *testing.T, change ...func(*Config)) *script {
	t.Helper()
	s := newScript(t, append([]func(*Config){placed, mayBeKernel}, change...)...)
	s.seq = 0
	s.kernelConnect()
	s.skip()
	return s
}

func (s *script) kernelConnect(change ...func(*wire.Private)) {
	s.t.Helper()
	s.q = s.peer.newQP(1 << 10)
	s.peer.dial(s.q, addrB, addrA, kernelPrivate(change...))
	s.run()
	if s.c.State() != Up || !s.c.Ready() || !s.c.Kernel() {
		s.t.Fatalf("state %v, ready %v, kernel %v after a kernel's request: %v", s.c.State(), s.c.Ready(), s.c.Kernel(), s.lastTrace)
	}
}

// kernelAgain breaks the connection and has the kernel connect anew.
func (s *script) kernelAgain(change ...func(*wire.Private)) {
	s.t.Helper()
	s.q.toErr(true)
	s.run()
	s.dropRequests()
	s.skip()
	s.kernelConnect(change...)
}

func (s *script) skip() { s.raw, s.how = nil, nil }

// kernelFrames returns what the kernel received since the last call, one frame a
// SEND, without the congestion maps.
func (s *script) kernelFrames() (out []got) {
	s.t.Helper()
	for i, b := range s.raw {
		var h wire.Header
		if err := wire.Parse(b, &h); err != nil {
			s.t.Fatal(err)
		}
		if h.Flags != wire.FlagCong {
			out = append(out, got{h, b[wire.HeaderLen:], i})
		}
	}
	s.skip()
	return out
}

// kdata is the next message of the kernel, in its only or first frame.
func (s *script) kdata(payload string, change ...func(*wire.Header)) []byte {
	return s.data(payload, append([]func(*wire.Header){func(h *wire.Header) { h.SrcInc = 0 }}, change...)...)
}

func ack(n uint64) func(*wire.Header) { return func(h *wire.Header) { h.Ack = n } }

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

// A message is one SEND per 4096 bytes, each with the header; the last one
// wakes the receiver.
func TestKernelFragments(t *testing.T) {
	for _, registered := range []bool{false, true} {
		for _, n := range []int{0, 1, 63, 4095, 4096, 4097, 8192, 8193, 40_000, 1 << 20} {
			t.Run(fmt.Sprint(n, registered), func(t *testing.T) {
				s := newKernel(t)
				m := &Msg{SPort: 3, DPort: 4, SrcInc: 5, DstInc: 6, Data: make([]byte, n), DestCookie: 0x1000_0000_1234}
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
				s.want(m, Acked)
				if s.out != 1 { // the connection's own
					t.Errorf("%d send buffers in use", s.out)
				}
			})
		}
	}
}

// Many messages, more than a batch, in order and one SEND each.
func TestKernelMany(t *testing.T) {
	s := newKernel(t)
	for i := range 300 {
		s.msg(strings.Repeat(string(rune('a'+i%26)), i*17%5000))
	}
	s.run()
	seq, n := uint64(99), 0
	for _, g := range s.kernelFrames() {
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
	s.want(a, Acked)
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
	s.want(b, Acked)
	if s.c.own.n != 0 || s.c.Info().Unacked != 0 {
		t.Errorf("%d own messages left", s.c.own.n)
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

func TestKernelReconnect(t *testing.T) {
	s := newKernel(t)
	a, b, c := s.msg("a"), s.msg("b"), s.msg("c")
	s.run()
	s.send(s.kdata("x"))
	s.send(frame(wire.Header{Ack: 100}, nil))
	s.want(a, Acked)
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
	s.want(b, Acked)
	if f = s.kernelFrames(); len(f) != 1 || f[0].Seq != 102 {
		t.Errorf("%+v", f)
	}
	// One beyond all that was sent is of an earlier life of ours.
	s.kernelAgain(func(p *wire.Private) { p.AckSeq = 5000 })
	s.open(c)
	s.send(frame(wire.Header{Ack: 102}, nil))
	s.want(c, Acked)
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

// Nobody is told of a message that finds no socket, and a host that refuses one
// has lost it.
func TestKernelNoNotices(t *testing.T) {
	s := newKernel(t)
	s.verdict = func(h *wire.Header) Verdict { return map[uint16]Verdict{20: NoSocket, 21: Refused}[h.DPort] }
	s.send(s.kdata("a", port(20), flags(wire.FlagAckRequired)))
	s.send(s.kdata("b", port(21), flags(wire.FlagAckRequired)))
	s.send(s.kdata("c", port(21)))
	if f := s.kernelFrames(); len(f) != 2 || f[0].Ack != 1 || f[1].Ack != 2 || s.c.own.n != 0 {
		t.Errorf("%+v", f)
	}
	if st := s.c.Stats(); st.RecvDropNoSock != 1 || st.RecvRefused != 2 {
		t.Errorf("%+v", st)
	}
	// Nor of what is rdsd's alone.
	g := &Msg{Internal: wire.TypeGrant, Data: make([]byte, wire.GrantLen)}
	s.c.Send(g)
	s.run()
	s.want(g, Cancelled)
	if len(s.raw) != 0 {
		t.Error("a GRANT to a kernel")
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

// A kernel may send before we have heard that the connection is established.
func TestKernelEarlyFrames(t *testing.T) {
	t.Run("passive", func(t *testing.T) {
		s := newScript(t, mayBeKernel)
		s.q = s.peer.newQP(64)
		s.seq = 0
		s.peer.dial(s.q, addrB, addrA, kernelPrivate())
		ev := s.dev.cm[0]
		s.dev.cm = nil
		s.c.HandleRequest(s.now, ev.Req, ev.Private)
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

// The other software at an address is a restart.
func TestKernelAfterDaemon(t *testing.T) {
	s := newScript(t, placed, mayBeKernel).up()
	sent := s.msg("sent")
	s.run()
	s.hold = true
	late := s.msg("late")
	g := &Msg{Internal: wire.TypeRevoke, Data: make([]byte, wire.RevokeLen)}
	s.q.toErr(true)
	s.c.Send(g)
	s.run()
	s.hold = false
	s.dropRequests()
	s.skip()
	s.kernelConnect()
	s.want(sent, Lost)
	s.want(g, Cancelled)
	if f := s.kernelFrames(); len(f) != 1 || string(f[0].body) != "late" {
		t.Errorf("%+v", f)
	}
	s.open(late)
	s.again(func(h *wire.Hello) { h.AckInst = 0 })
	s.want(late, Lost)
	if !slices.Equal(s.ups, []bool{false, true, true}) {
		t.Errorf("PeerUp %v", s.ups)
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
