package conn

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/internal/runs"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// messages puts the fragments of what a kernel received together, and checks that every
// sequence is one above the last.
func (s *script) messages(from uint64) (out []string) {
	s.t.Helper()
	for _, f := range s.kernelFrames() {
		if f.Seq == from-1 && len(out) > 0 {
			out[len(out)-1] += string(f.body)
			continue
		}
		if f.Seq != from || f.Flags&wire.FlagRun != 0 || f.SPort != 3 || f.DPort != 4 {
			s.t.Fatalf("%+v, want sequence %d", f.Header, from)
		}
		out = append(out, string(f.body))
		from++
	}
	return out
}

// TestKernelRun: a kernel gets each datagram of a run by itself, in order with what is
// sent before and behind, and the run ends when the last one is acked.
func TestKernelRun(t *testing.T) {
	s := newKernel(t)
	want := append(runs.Letters(100), strings.Repeat("x", 2*kernelPiece+9), "", "end")
	s.msg("before")
	m := s.sendRun(want...)
	s.msg("behind")
	if i := s.c.Info(); i.Queued != 105 {
		t.Errorf("%d queued", i.Queued)
	}
	s.run()
	if got := s.messages(100); !slices.Equal(got, slices.Concat([]string{"before"}, want, []string{"behind"})) {
		t.Fatalf("%d messages: %.100q", len(got), got)
	}
	i, st := s.c.Info(), s.c.Stats()
	if i.Unacked != 105 || i.Queued != 0 || st.SendMsgs != 105 || st.SendBytes != uint64(12+m.Payload) || st.SendQueued != 105 {
		t.Errorf("%d not acked, %d queued, %d sent with %d bytes", i.Unacked, i.Queued, st.SendMsgs, st.SendBytes)
	}
	if seq, sent := m.Sent(); seq != 101 || !sent || !m.EverSent() {
		t.Errorf("sent %v with sequence %d", sent, seq)
	}
	s.send(frame(wire.Header{Ack: 202}, nil))
	s.open(m)
	if seq, sent := m.Sent(); seq != 203 || !sent {
		t.Errorf("sent %v with sequence %d", sent, seq)
	}
	s.send(frame(wire.Header{Ack: 203}, nil))
	s.want(m, msg.Acked)
	if m.Ended != 103 || s.c.cuts.N != 0 || s.c.cuts.Runs != nil {
		t.Errorf("%d ended, %d parts left", m.Ended, s.c.cuts.N)
	}
}

// TestKernelRunInPlace: a long datagram of a run in registered memory is sent from there.
func TestKernelRunInPlace(t *testing.T) {
	s := newKernel(t)
	long := strings.Repeat("0123456789abcdef", 1000)
	m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: runs.Of("a", long, "z"), Run: 3}
	m.LKey = s.dev.reg(m.Data)
	s.c.Send(m)
	s.hold = true
	s.run()
	s.c.Cancel(m, msg.Cancelled)
	s.open(m) // its memory is in use
	s.hold = false
	s.run()
	s.want(m, msg.Cancelled)
	if got := s.messages(100); !slices.Equal(got, []string{"a", long, "z"}) {
		t.Errorf("%.40q", got)
	}
}

// TestKernelRunBreaks: when the connection breaks, what was posted of a run goes again,
// flagged, and then the rest of it.
func TestKernelRunBreaks(t *testing.T) {
	s := newKernel(t)
	want := runs.Letters(300)
	m := s.sendRun(want...)
	s.hold = true
	s.run()
	if i := s.c.Info(); i.Unacked == 0 || i.Queued == 0 || i.Unacked+i.Queued != 300 {
		t.Fatalf("%d sent, %d wait", i.Unacked, i.Queued)
	}
	s.hold = false
	s.kernelAgain()
	s.run()
	if got := s.messages(100); !slices.Equal(got, want) {
		t.Errorf("%d messages: %.100q", len(got), got)
	}
	s.send(frame(wire.Header{Ack: 399}, nil))
	s.want(m, msg.Acked)
}

// TestKernelRunRewritten: whatever the sender makes of a run while it is sent, as many
// datagrams are sent as it has said, and none reaches beyond it.
func TestKernelRunRewritten(t *testing.T) {
	s := newKernel(t)
	m := s.sendRun(runs.Letters(200)...)
	s.hold = true
	s.run()
	left := m.Run
	if data, run := m.Whole(); run != 200 || len(data) <= len(m.Data) {
		t.Errorf("%d datagrams in all, %d bytes of which %d are left", run, len(data), len(m.Data))
	}
	binary.LittleEndian.PutUint32(m.Data, 1<<31) // of the next one to be cut off
	s.hold = false
	s.run()
	got := s.messages(100)
	if want := append(runs.Letters(200)[:200-left], make([]string, left)...); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s.send(frame(wire.Header{Ack: 299}, nil))
	s.want(m, msg.Acked)
}

// TestKernelRunCancelled: what of a cancelled run was acked is told.
func TestKernelRunCancelled(t *testing.T) {
	for name, cancel := range map[string]func(s *script, m *msg.Msg){
		"Cancel":         func(s *script, m *msg.Msg) { s.c.Cancel(m, msg.GaveUp) },
		"GiveUp":         func(s *script, m *msg.Msg) { s.c.GiveUp(m) },
		"CancelMatching": func(s *script, m *msg.Msg) { s.c.CancelMatching(func(o *msg.Msg) bool { return o == m }, msg.GaveUp) },
	} {
		s := newKernel(t)
		m, other := s.sendRun(runs.Letters(200)...), s.sendRun("x", "y")
		s.hold = true
		s.run()
		s.hold = false
		s.q.h.net.hosts[addrA].qps[0].toWire()
		s.send(frame(wire.Header{Ack: 109}, nil))
		s.run()
		s.open(m, other)
		cancel(s, m)
		s.run()
		s.want(m, msg.GaveUp)
		if m.Ended != 190 {
			t.Errorf("%s: %d ended, want 190", name, m.Ended)
		}
		s.open(other)
		s.c.Close(s.now)
		s.run()
		s.want(other, msg.Cancelled)
		if other.Ended != 2 || s.c.cuts.N != 0 || s.c.cuts.Runs != nil {
			t.Errorf("%s: %d ended, %d parts left", name, other.Ended, s.c.cuts.N)
		}
	}
}

// TestKernelRunNotSent: a run of which nothing was sent is withdrawn, and goes to
// whoever is at the address next.
func TestKernelRunNotSent(t *testing.T) {
	s := newKernel(t)
	s.hold = true
	for len(s.bufs) > 0 { // so that one of the run is cut off and waits
		s.msg("x")
		s.c.Flush(s.now)
	}
	a, b := s.sendRun("a"), s.sendRun("b", "c")
	s.c.Flush(s.now)
	if !a.IsCut() {
		t.Fatal("nothing waits")
	}
	var waiting []*msg.Msg
	s.c.Waiting(func(m *msg.Msg) { waiting = append(waiting, m) })
	if !slices.Equal(waiting, []*msg.Msg{a, b}) {
		t.Errorf("%d messages wait", len(waiting))
	}
	if o, later := s.c.GiveUp(a); o != msg.Withdrawn || later {
		t.Errorf("%v, %v", o, later)
	}
	s.want(a, msg.Withdrawn)
	if s.c.Flush(s.now); !b.IsCut() {
		t.Fatal("nothing waits")
	}
	s.q.toErr(true)
	s.hold = false
	s.run()
	s.dropRequests()
	s.skip()
	if b.EverSent() || b.IsCut() {
		t.Error("it was sent")
	}
	s.up()
	f := s.frames()
	if len(f) != 1 || f[0].Flags&wire.FlagRun == 0 || string(f[0].body) != string(b.Data) {
		t.Errorf("%+v", f)
	}
	s.again()
	s.open(b)
}

// TestKernelRunLost: a run of which a part was sent is lost with the rest of it when
// another peer is at the address; what was acked is not.
func TestKernelRunLost(t *testing.T) {
	s := newKernel(t)
	m, next := s.sendRun(runs.Letters(200)...), s.sendRun("x", "y")
	s.hold = true
	s.run()
	s.send(frame(wire.Header{Ack: 104}, nil))
	s.hold = false
	s.q.toErr(true)
	s.run()
	s.dropRequests()
	s.skip()
	s.up()
	s.want(m, msg.Lost)
	if st := s.c.Stats(); m.Ended != 195 || st.Lost != 195 {
		t.Errorf("%d ended, %d lost, want 195", m.Ended, st.Lost)
	}
	if f := s.frames(); len(f) != 1 || string(f[0].body) != string(next.Data) {
		t.Errorf("%+v", f)
	}
}

// TestKernelRunBound: parts are bounded, and those that wait for room ask for acks.
func TestKernelRunBound(t *testing.T) {
	s := newKernel(t)
	const n = frames.MaxLen / frames.Head
	m := s.sendRun(make([]string, n)...)
	s.run()
	acked := uint64(99)
	for range n {
		if len(s.done) > 0 {
			break
		}
		if s.c.cuts.N > msg.MaxParts {
			t.Fatalf("%d parts", s.c.cuts.N)
		}
		f := s.kernelFrames()
		asked := acked
		for _, g := range f {
			if g.Flags&wire.FlagAckRequired != 0 {
				asked = g.Seq
			}
		}
		if asked == acked {
			t.Fatalf("%d datagrams, and none of the last %d asks for an ack", acked-99, len(f))
		}
		acked = asked
		if acked == 99+n-1 || acked == 99+n {
			acked = 99 + n // the rest asks when it has waited
		}
		s.send(frame(wire.Header{Ack: acked}, nil))
	}
	s.want(m, msg.Acked)
	parts := 0
	for v := reflect.ValueOf(&s.c.cuts).Elem().FieldByName("free"); !v.IsNil(); v = v.Elem().FieldByName("Next") {
		parts++
	}
	if parts > msg.MaxParts {
		t.Errorf("%d parts were made", parts)
	}
}

// fastKernel is a Conn whose peer is a kernel that does nothing.
func fastKernel(tb testing.TB) *fastHost {
	h := &fastHost{qp: &fastQP{num: 1, mem: make(map[uint32][]byte)}}
	for k := range uint32(64) {
		mem := make([]byte, 32<<10)
		h.qp.mem[k] = mem
		h.bufs = append(h.bufs, &SendBuf{Mem: mem, LKey: k})
	}
	cfg := testConfig(addrA, addrB, 1)
	cfg.Kernel = true
	h.c = New(cfg, h)
	h.c.HandleRequest(1, 1, 0, kernelPrivate())
	h.c.HandleCM(1, &verbs.CMEvent{Type: verbs.CMEstablished, QP: h.qp})
	if !h.c.Kernel() || !h.c.Ready() {
		tb.Fatalf("not up: %v", h.c.State())
	}
	return h
}

// kernelTurn sends m and has it acked.
func (h *fastHost) kernelTurn(m *msg.Msg, ack []byte) {
	h.c.Send(m)
	for done := h.done; h.done == done; {
		h.c.Flush(1)
		for _, s := range h.qp.sends {
			h.c.HandleSend(1, &verbs.WC{WRID: s.wrid, QPNum: 1})
		}
		h.qp.sends = h.qp.sends[:0]
		hd := wire.Header{Ack: h.c.out.nextTx - 1}
		hd.Put(ack)
		h.c.HandleRecv(1, &verbs.WC{QPNum: 1, ByteLen: wire.HeaderLen}, ack)
	}
	h.free = h.free[:0]
}

// BenchmarkKernelRuns64 is what a datagram of a run to a kernel costs its sender.
func BenchmarkKernelRuns64(b *testing.B) {
	const size = 100
	h := fastKernel(b)
	m := &msg.Msg{SPort: 1, DPort: 2, SrcInc: 1, Data: runs.Of(slices.Repeat([]string{strings.Repeat("x", 64)}, size)...), Run: size}
	ack := make([]byte, wire.HeaderLen)
	b.ReportAllocs()
	for n := 0; n < b.N; n += size {
		h.kernelTurn(m, ack)
	}
}

// BenchmarkKernelMessages64 is the same for datagrams by themselves.
func BenchmarkKernelMessages64(b *testing.B) {
	h := fastKernel(b)
	ms := make([]*msg.Msg, 100)
	for i := range ms {
		ms[i] = &msg.Msg{SPort: 1, DPort: 2, SrcInc: 1, Data: make([]byte, 64)}
	}
	ack := make([]byte, wire.HeaderLen)
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(ms) {
		for _, m := range ms[1:] {
			h.c.Send(m)
		}
		h.kernelTurn(ms[0], ack)
	}
}

func TestKernelRunNoAlloc(t *testing.T) {
	h := fastKernel(t)
	m := &msg.Msg{SPort: 1, DPort: 2, SrcInc: 1, Data: runs.Of(runs.Letters(500)...), Run: 500}
	ack := make([]byte, wire.HeaderLen)
	if n := testing.AllocsPerRun(100, func() { h.kernelTurn(m, ack) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
