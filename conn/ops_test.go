package conn

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// op is a message with an operation on the peer's memory.
func (s *script) op(k abi.OpKind, n int) *msg.Msg {
	key := s.dev.reg(make([]byte, n))
	return &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("op"), Op: &rdmaop.Op{
		Kind: k, Cookie: uint64(s.key), Len: uint64(n), Segs: []rdmaop.Seg{{LKey: key, Len: uint32(n)}},
	}}
}

// posted returns the Conn's requests that wait in the fake (hold).
func (s *script) posted() []*fakeWR { return s.dev.qps[len(s.dev.qps)-1].posted }

func TestOperationBatch(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	ops := []*msg.Msg{s.op(abi.OpWrite, 16), s.op(abi.OpRead, 32), s.op(abi.OpWrite, 8)}
	refused := s.op(abi.OpWrite, 8)
	s.refuse[refused] = true
	s.c.Send(ops[0])
	s.c.Send(ops[1])
	s.c.Send(refused)
	s.c.Send(ops[2])
	s.run()
	s.want(refused, msg.OpRefused)
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
	s.want(ops[1], msg.Acked)
	s.open(ops[2])
}

// A refused operation does not let the next one in that has to wait.
func TestRefusedThenRoom(t *testing.T) {
	s := newScript(t, func(c *Config) { c.MaxSendWR = 8; c.Attr.MaxSGE = 1 }).up()
	s.hold = true
	long := func() *msg.Msg { // 4 requests
		m := s.op(abi.OpWrite, 16)
		for len(m.Op.Segs) < 4 {
			m.Op.Segs = append(m.Op.Segs, m.Op.Segs[0])
		}
		m.Op.Len *= 4
		return m
	}
	refused := s.op(abi.OpWrite, 16)
	s.refuse[refused] = true
	s.c.Send(long())
	s.run()
	s.c.Send(refused)
	s.c.Send(long())
	s.run()
	s.want(refused, msg.OpRefused)
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
	m := s.op(abi.OpWrite, 16)
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
		s.c.Send(s.op(abi.OpRead, 16))
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

func TestLargeOperation(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	m := s.op(abi.OpRead, 16)
	m.Data = make([]byte, 20_000)
	m.LKey = s.dev.reg(m.Data)
	s.c.Send(m)
	s.c.Send(s.op(abi.OpWrite, 16))
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
	s.want(m, msg.Acked)
}

func TestOperationFails(t *testing.T) {
	s := newScript(t).up()
	a, b, c := s.op(abi.OpWrite, 16), s.op(abi.OpRead, 16), s.op(abi.OpWrite, 16)
	n := 0
	s.q.onRDMA = func(*verbs.SendWR) bool { n++; return n != 2 }
	for _, m := range []*msg.Msg{a, b, c} {
		s.c.Send(m)
	}
	s.run()
	if s.want(b, msg.OpFailed); b.WCStatus != verbs.WCRemAccessErr {
		t.Errorf("status %d", b.WCStatus)
	}
	s.open(a, c)
	if !s.local[a] || !s.local[b] || !s.local[c] {
		t.Error("not all local")
	}
	s.dropRequests()
	s.up()
	s.want(a, msg.Dropped)
	s.want(c, msg.Dropped)
}
