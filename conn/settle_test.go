package conn

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// op is a message with an operation on the peer's memory.
func (s *script) op(k rdmaop.Kind, n int) *Msg {
	key := s.dev.reg(make([]byte, n))
	return &Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("op"), Op: &rdmaop.Op{
		Kind: k, Cookie: uint64(s.key), Len: uint64(n), Segs: []rdmaop.Seg{{LKey: key, Len: uint32(n)}},
	}}
}

// posted returns the Conn's requests that wait in the fake (hold).
func (s *script) posted() []*fakeWR { return s.dev.qps[len(s.dev.qps)-1].posted }

func TestOperationBatch(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	ops := []*Msg{s.op(rdmaop.Write, 16), s.op(rdmaop.Read, 32), s.op(rdmaop.Write, 8)}
	refused := s.op(rdmaop.Write, 8)
	s.refuse[refused] = true
	s.c.Send(ops[0])
	s.c.Send(ops[1])
	s.c.Send(refused)
	s.c.Send(ops[2])
	s.run()
	s.want(refused, OpRefused)
	w := s.posted()
	if len(w) != 4 {
		t.Fatalf("%d requests", len(w))
	}
	for i, op := range []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.OpRDMAWrite} {
		if w[i].Op != op || w[i].Flags != 0 {
			t.Errorf("request %d: %+v", i, w[i].SendWR)
		}
	}
	if w[3].Op != verbs.OpSend || w[3].Flags != verbs.SendSignaled|verbs.SendFence {
		t.Errorf("SEND %+v", w[3].SendWR)
	}
	if len(s.local) != 0 {
		t.Error("local before completion")
	}
	s.hold = false
	s.run()
	f := s.frames()
	if len(f) != 3 || f[2].send != 0 || f[2].Flags&wire.FlagAckRequired == 0 {
		t.Errorf("frames %+v", f)
	}
	for _, m := range ops {
		if !s.local[m] {
			t.Error("not local after completion")
		}
	}
	if s.local[refused] {
		t.Error("a refused operation became local")
	}
	s.open(ops...)
	s.send(frame(wire.Header{Ack: 101}, nil))
	s.want(ops[1], Acked)
	s.open(ops[2])
}

// A refused operation does not let the next one in that has to wait.
func TestRefusedThenRoom(t *testing.T) {
	s := newScript(t, func(c *Config) { c.MaxSendWR = 8; c.Attr.MaxSGE = 1 }).up()
	s.hold = true
	long := func() *Msg { // 4 requests
		m := s.op(rdmaop.Write, 16)
		for len(m.Op.Segs) < 4 {
			m.Op.Segs = append(m.Op.Segs, m.Op.Segs[0])
		}
		m.Op.Len *= 4
		return m
	}
	refused := s.op(rdmaop.Write, 16)
	s.refuse[refused] = true
	s.c.Send(long())
	s.run()
	s.c.Send(refused)
	s.c.Send(long())
	s.run()
	s.want(refused, OpRefused)
	if n := len(s.posted()); n != 5 || s.c.State() != Up {
		t.Errorf("%d requests posted, want 5 until there is room; %v", n, s.c.State())
	}
	s.hold = false
	s.run()
	if f := s.frames(); len(f) != 2 {
		t.Errorf("%d messages", len(f))
	}
	if s.out != 1 { // the control buffer
		t.Errorf("%d send buffers taken", s.out)
	}
}

func TestSilentAndUnfenced(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	m := s.op(rdmaop.Write, 16)
	m.Silent = true
	s.c.Send(m)
	s.run()
	if w := s.posted(); len(w) != 2 || w[1].Flags != verbs.SendSignaled {
		t.Errorf("requests %+v", w)
	}
	s.hold = false
	s.run()
	if f := s.frames(); len(f) != 1 || f[0].Flags != wire.FlagSilent|wire.FlagAckRequired {
		t.Errorf("frames %+v", f)
	}
	s.send(s.data("silent", flags(wire.FlagSilent)))
	if len(s.delivered) != 0 || s.c.in.last != s.seq {
		t.Error("a silent message was delivered, or not counted")
	}
}

func TestReadDepth(t *testing.T) {
	s := newScript(t).up(func(h *wire.Hello) { h.ReadDepth = 2 })
	s.hold = true
	for range 10 {
		s.c.Send(s.op(rdmaop.Read, 16))
	}
	s.run()
	reads, sends := 0, 0
	for _, w := range s.posted() {
		if w.Op == verbs.OpRDMARead {
			reads++
		} else {
			sends++
		}
	}
	if reads != 4 || sends != 2 {
		t.Errorf("%d READs with %d SENDs posted at depth 2", reads, sends)
	}
	s.hold = false
	s.run()
	if f := s.frames(); len(f) != 10 {
		t.Errorf("%d messages", len(f))
	}
}

func TestSendQueueRoom(t *testing.T) {
	s := newScript(t, func(c *Config) { c.MaxSendWR = 8; c.Attr.MaxSGE = 1 }).up()
	s.hold = true
	big := s.op(rdmaop.Write, 16) // 8 requests: never fits
	for len(big.Op.Segs) < 8 {
		big.Op.Segs = append(big.Op.Segs, big.Op.Segs[0])
	}
	s.c.Send(big)
	s.run()
	if s.want(big, OpRefused); big.WCStatus != verbs.WCLocLenErr || big.Bad != big.Op {
		t.Errorf("status %d", big.WCStatus)
	}
	for range 20 {
		s.c.Send(s.op(rdmaop.Write, 16))
	}
	s.run()
	if n := len(s.posted()); n != 7 {
		t.Errorf("%d requests posted, 8 fit and one slot is kept", n)
	}
	s.hold = false
	s.run()
	if f := s.frames(); len(f) != 20 {
		t.Errorf("%d messages", len(f))
	}
}

func TestLargeOperation(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	m := s.op(rdmaop.Read, 16)
	m.Data = make([]byte, 20_000)
	m.LKey = s.dev.reg(m.Data)
	s.c.Send(m)
	s.c.Send(s.op(rdmaop.Write, 16))
	s.run()
	w := s.posted()
	if len(w) != 5 || w[0].Op != verbs.OpRDMARead || w[1].Flags != verbs.SendSignaled|verbs.SendFence ||
		w[2].Op != verbs.OpSend || w[2].Flags != verbs.SendSignaled || w[3].Op != verbs.OpRDMAWrite {
		t.Fatalf("%d requests", len(w))
	}
	s.hold = false
	s.run()
	if f := s.frames(); len(f) != 3 || len(f[0].body)+len(f[1].body) != 20_000 || !s.local[m] {
		t.Errorf("%d frames, local %v", len(f), s.local[m])
	}
	s.send(frame(wire.Header{Ack: 100}, nil))
	s.want(m, Acked)
}

// What the handshake acks is SUCCESS, the rest DROPPED; plain messages go again.
func TestSettleByHandshake(t *testing.T) {
	s := newScript(t).up()
	var m [6]*Msg
	for i := range m {
		if i%2 == 0 {
			m[i] = s.op(rdmaop.Write, 16)
			s.c.Send(m[i])
		} else {
			m[i] = s.msg("plain")
		}
		s.run()
	}
	s.q.toErr(true)
	s.run()
	s.open(m[:]...)
	for i := 0; i < 6; i += 2 {
		if !s.local[m[i]] {
			t.Errorf("operation %d is not local although the queue pair is gone", i)
		}
	}
	if s.c.NextTimeout() == 0 {
		t.Error("no settlement timer")
	}
	unposted := s.op(rdmaop.Write, 16)
	s.c.Send(unposted)
	s.dropRequests()
	s.raw = nil
	s.up(func(h *wire.Hello) { h.Ack = 102 })
	for i, want := range []Outcome{Acked, Acked, Acked} {
		s.want(m[i], want)
	}
	s.want(m[4], Dropped)
	s.open(m[3], m[5], unposted)
	f := s.frames()
	if len(f) != 3 || f[0].Seq != 103 || f[1].Seq != 105 || f[0].Flags&wire.FlagRetransmitted == 0 ||
		f[1].Flags&wire.FlagRetransmitted == 0 || f[2].Seq != 106 || f[2].Flags&wire.FlagRetransmitted != 0 {
		t.Errorf("frames %+v", f)
	}
	if s.c.NextTimeout() != 0 {
		t.Errorf("the settlement timer goes on: %d", s.c.NextTimeout())
	}
}

func TestSettleTimeout(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Rand = func() uint64 { return 1<<63 - 1 } }).up()
	m, plain := s.op(rdmaop.Write, 16), s.msg("plain")
	s.c.Send(m)
	s.run()
	s.q.toErr(true)
	s.run()
	start := s.now
	for s.now < start+30e9 {
		s.open(m)
		s.dropRequests()
		if s.now = s.c.NextTimeout(); s.now == 0 {
			t.Fatal("no timer")
		}
		s.c.Tick(s.now)
	}
	s.want(m, Unknown)
	s.open(plain)
	s.dropRequests()
	s.raw = nil
	s.up(func(h *wire.Hello) { h.Ack = 101 })
	s.want(plain, Acked)
}

func TestRestartWithOperations(t *testing.T) {
	s := newScript(t).up()
	posted := s.op(rdmaop.Write, 16)
	s.c.Send(posted)
	s.run()
	s.q.toErr(true)
	s.run()
	queued := s.op(rdmaop.Write, 16)
	s.refuse[queued] = true // the host clears its grants in PeerUp
	s.c.Send(queued)
	s.dropRequests()
	s.up(func(h *wire.Hello) { h.Instance, h.AckInst = 78, 0 })
	s.want(posted, Unknown)
	s.want(queued, OpRefused)
}

// HELLO's ack settles nothing, and no operation is posted, before the notices
// it speaks of have arrived.
func TestGate(t *testing.T) {
	s := newScript(t).up()
	a, b := s.msg("a"), s.msg("b")
	o := s.op(rdmaop.Write, 16)
	s.c.Send(o)
	s.run()
	queued := s.op(rdmaop.Write, 16)
	s.again(func(h *wire.Hello) { h.Ack, h.Notice = 102, s.seq+2 })
	s.c.Send(queued)
	plain := s.msg("plain behind it")
	s.run()
	s.send(frame(wire.Header{Ack: 102}, nil))
	s.open(a, b, o, queued)
	if f := s.frames(); len(f) != 0 {
		t.Errorf("an operation was posted: %+v", f)
	}
	s.send(s.notice(wire.TypeNoSock, 101, 4))
	s.want(b, NoSock)
	s.want(a, Acked) // notices are in order: there is none for it
	s.open(o)
	s.send(s.notice(wire.TypeNoSock, 102, 4))
	s.want(o, NoSock)
	if f := s.frames(); len(f) != 2 || string(f[1].body) != "plain behind it" {
		t.Errorf("after the gate: %+v", f)
	}
	s.open(plain)
}

// The ack does not pass a message whose notice has not been posted; HELLO's
// notice covers what is owed.
func TestAckWaitsForNotice(t *testing.T) {
	s := newScript(t).up(func(h *wire.Hello) { h.Credits = 4 })
	s.verdict = func(h *wire.Header) Verdict {
		if h.DPort == 66 {
			return NoSocket
		}
		return Accepted
	}
	s.credits(0)
	s.send(s.data("fine"), s.data("lost", port(66)), s.data("fine too"))
	if a := s.c.ackValue(); a != s.seq-2 {
		t.Errorf("acks %d, the message before the notice is %d", a, s.seq-2)
	}
	grant := &Msg{Internal: wire.TypeGrant, Data: make([]byte, 32)}
	s.c.Send(grant)
	datagram := s.msg("datagram")
	s.q.toErr(true)
	s.run()
	s.dropRequests()
	s.raw = nil
	s.connect()
	h, err := wire.ParseHello(s.frames()[0].body)
	if err != nil || h.Ack != s.seq || h.AckInst != 77 || h.Notice != 101 {
		t.Errorf("HELLO %+v, %v", h, err)
	}
	s.hello()
	f := s.frames()
	if len(f) != 3 || f[0].DPort != uint16(wire.TypeNoSock) || f[0].Seq != 100 || u64(f[0].body) != s.seq-1 ||
		f[1].DPort != uint16(wire.TypeGrant) || f[1].Seq != 101 || string(f[2].body) != "datagram" || f[2].Seq != 102 {
		t.Errorf("frames %+v", f)
	}
	s.open(datagram, grant)
	s.send(frame(wire.Header{Ack: 102}, nil))
	s.want(grant, Acked)
}

// The body of a notice counts before the ack of its frame.
func TestNoticeBeforeItsAck(t *testing.T) {
	s := newScript(t).up()
	a, b, c := s.msg("a"), s.msg("b"), s.msg("c")
	s.run()
	n := wire.Notice{Seq: 101, DPort: 4}
	s.seq++
	s.send(frame(wire.Header{Seq: s.seq, Ack: 101, DPort: uint16(wire.TypeNoSock), Flags: wire.FlagInternal}, n.Append(nil)))
	s.want(a, Acked)
	s.want(b, NoSock)
	s.open(c)
}

func TestRefused(t *testing.T) {
	s := newScript(t).up()
	a, b := s.msg("a"), s.msg("b")
	other := &Msg{SPort: 3, DPort: 5, Data: []byte("other")}
	s.c.Send(other)
	s.run()
	s.frames()
	s.cong(4)
	s.send(s.notice(wire.TypeRefused, 100, 4))
	c := s.msg("c")
	o2 := &Msg{SPort: 3, DPort: 5, Data: []byte("other 2")}
	s.c.Send(o2)
	s.run()
	if f := s.frames(); len(f) != 1 || string(f[0].body) != "other 2" {
		t.Fatalf("while stopped: %+v", f)
	}
	if i := s.c.Info(); i.Stopped != 2 { // a and c
		t.Errorf("%d held back", i.Stopped)
	}
	s.cong() // free, but b is still in flight
	if f := s.frames(); len(f) != 0 {
		t.Fatalf("b could be overtaken: %+v", f)
	}
	s.send(s.notice(wire.TypeRefused, 101, 4))
	f := s.frames()
	var text []string
	for i, g := range f {
		text = append(text, string(g.body))
		if resume := g.Flags&wire.FlagResume != 0; resume != (i == 0) || g.Seq != 104+uint64(i) || g.Flags&wire.FlagRetransmitted != 0 {
			t.Errorf("frame %d: %+v", i, g)
		}
	}
	if strings.Join(text, "") != "abc" {
		t.Errorf("sent %q", text)
	}
	s.open(a, b, c)
	s.send(frame(wire.Header{Ack: 106}, nil))
	for _, m := range []*Msg{a, b, c, other, o2} {
		s.want(m, Acked)
	}
	s.msg("d")
	s.run()
	if f := s.frames(); len(f) != 1 || f[0].Flags&wire.FlagResume != 0 || len(s.c.stops.list) != 0 {
		t.Errorf("after resuming: %+v, %d stops", f, len(s.c.stops.list))
	}
}

// A refused operation's message is a plain message from then on.
func TestRefusedOperation(t *testing.T) {
	s := newScript(t).up()
	m := s.op(rdmaop.Write, 16)
	s.c.Send(m)
	s.run()
	s.frames()
	s.hold = true
	s.send(s.notice(wire.TypeRefused, 100, 4))
	w := s.posted()
	if len(w) != 1 || w[0].Op != verbs.OpSend {
		t.Fatalf("the operation was posted again: %d requests", len(w))
	}
	s.hold = false
	s.run()
	s.again(func(h *wire.Hello) { h.Ack = 100 })
	s.open(m)
	if f := s.frames(); len(f) != 1 || f[0].Seq != 101 || f[0].Flags&(wire.FlagRetransmitted|wire.FlagResume) != wire.FlagRetransmitted|wire.FlagResume {
		t.Errorf("frames %+v", f)
	}
	s.send(frame(wire.Header{Ack: 101}, nil))
	s.want(m, Acked)
}

// Having refused, a receiver refuses until RESUME.
func TestRefusing(t *testing.T) {
	s := newScript(t).up()
	full := true
	s.verdict = func(h *wire.Header) Verdict {
		if full && h.DPort == 9 {
			return Refused
		}
		return Accepted
	}
	s.send(s.data("a"))
	full = false
	s.send(s.data("b"), s.data("other", port(8)), s.data("", port(9), flags(wire.FlagSilent)))
	f := s.frames()
	if len(f) != 2 || u64(f[0].body) != s.seq-3 || u64(f[1].body) != s.seq-2 || f[1].DPort != uint16(wire.TypeRefused) {
		t.Fatalf("notices %+v", f)
	}
	s.again(func(h *wire.Hello) { h.Ack = 101 }) // it remembers over a reconnect
	s.send(s.data("c"))
	s.send(s.data("d", flags(wire.FlagResume)), s.data("e"))
	if got := strings.Join(s.delivered, ","); got != "other,d,e" {
		t.Errorf("delivered %q", got)
	}
}

func TestOperationFails(t *testing.T) {
	s := newScript(t).up()
	a, b, c := s.op(rdmaop.Write, 16), s.op(rdmaop.Read, 16), s.op(rdmaop.Write, 16)
	n := 0
	s.q.onRDMA = func(*verbs.SendWR) bool { n++; return n != 2 }
	for _, m := range []*Msg{a, b, c} {
		s.c.Send(m)
	}
	s.run()
	if s.want(b, OpFailed); b.WCStatus != verbs.WCRemAccessErr {
		t.Errorf("status %d", b.WCStatus)
	}
	s.open(a, c)
	if !s.local[a] || !s.local[b] || !s.local[c] {
		t.Error("not all local")
	}
	s.dropRequests()
	s.up()
	s.want(a, Dropped)
	s.want(c, Dropped)
}

func TestInternalMessages(t *testing.T) {
	s := newScript(t).up()
	in := func(ty wire.InternalType, body []byte) []byte {
		s.seq++
		return frame(wire.Header{Seq: s.seq, DPort: uint16(ty), Flags: wire.FlagInternal}, body)
	}
	revoke := (&wire.Revoke{RKey: 5, Lanes: 1}).Append(nil)
	s.send(in(wire.TypeGrant, make([]byte, 40)), in(wire.TypeRevoke, revoke), in(99, make([]byte, 3)), in(wire.TypeRevoked, revoke),
		in(wire.TypeGrantNak, make([]byte, 8)))
	want := []wire.InternalType{wire.TypeGrant, wire.TypeRevoke, wire.TypeRevoked, wire.TypeGrantNak}
	if !slices.Equal(s.internals, want) || s.c.in.last != s.seq {
		t.Errorf("%v", s.internals)
	}
}
