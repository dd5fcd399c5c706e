package conn

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// two is a message with an operation and an atomic on another key.
func (s *script) two(k abi.OpKind, a rdmaop.AtomicArgs) *msg.Msg {
	m := s.op(k, 16)
	m.Op2 = s.op(abi.OpFetchAdd, 8).Op
	m.Op2.Cookie = uint64(s.peer.reg(make([]byte, 8)))
	m.Op2.Atomic = a
	return m
}

// Both operations are posted ahead of one SEND, which alone is signaled and
// fenced; they share completion and ack.
func TestTwoOperations(t *testing.T) {
	for _, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead} {
		s := newScript(t).up()
		s.hold = true
		m := s.two(kind, rdmaop.AtomicArgs{CompareAdd: 1})
		s.c.Send(m)
		s.run()
		w := s.posted()
		first := verbs.OpRDMAWrite
		if kind == abi.OpRead {
			first = verbs.OpRDMARead
		}
		if len(w) != 3 || w[0].Op != first || w[1].Op != verbs.OpAtomicFetchAdd || w[2].Op != verbs.OpSend {
			t.Fatalf("%v: %d requests", kind, len(w))
		}
		if w[0].Flags|w[1].Flags != 0 || w[2].Flags != verbs.SendSignaled|verbs.SendFence {
			t.Errorf("%v: flags %x %x %x", kind, w[0].Flags, w[1].Flags, w[2].Flags)
		}
		if s.local[m] {
			t.Errorf("%v: local before completion", kind)
		}
		s.hold = false
		s.run()
		f := s.frames()
		if len(f) != 1 || f[0].Exts().RDMA != 2 || f[0].Exts().RDMAKeys != [2]uint32{m.Op.RKey(), m.Op2.RKey()} {
			t.Fatalf("%v: frames %+v", kind, f)
		}
		if !s.local[m] || s.c.sq.reads != 0 || s.c.sq.used != 0 {
			t.Errorf("%v: local %v, %d reads and %d requests outstanding", kind, s.local[m], s.c.sq.reads, s.c.sq.used)
		}
		s.open(m)
		s.send(frame(wire.Header{Ack: f[0].Seq}, nil))
		s.want(m, msg.Acked)
	}
}

// There is room for all of it or nothing is posted.
func TestTwoOperationsRoom(t *testing.T) {
	s := newScript(t, func(c *Config) { c.MaxSendWR = 8 }).up()
	s.hold = true
	first, m := s.op(abi.OpWrite, 16), s.two(abi.OpWrite, rdmaop.AtomicArgs{})
	m2 := s.two(abi.OpWrite, rdmaop.AtomicArgs{})
	s.c.Send(first)
	s.run()
	s.c.Send(m)
	s.run()
	if n := len(s.posted()); n != 5 {
		t.Fatalf("%d requests, want 2 and 3", n)
	}
	s.c.Send(m2)
	s.run()
	if n := len(s.posted()); n != 5 || m2.Track.Op.Posted() {
		t.Errorf("%d requests: posted into 2 free slots", n)
	}
	s.hold = false
	s.run()
	if f := s.frames(); len(f) != 3 {
		t.Errorf("%d messages", len(f))
	}
}

// What the peer or the device cannot do is refused before anything of the
// message is posted, and the culprit is named.
func TestUnsupported(t *testing.T) {
	masked := rdmaop.AtomicArgs{CompareMask: 1}
	for _, c := range []struct {
		name     string
		features uint32
		args     rdmaop.AtomicArgs
		ok       bool
	}{
		{"plain, no atomics", 0, rdmaop.AtomicArgs{}, false},
		{"plain, plain ones", wire.FeatureAtomics, rdmaop.AtomicArgs{}, true},
		{"masked, plain ones", wire.FeatureAtomics, masked, false},
		{"masked, all", wire.FeatureAtomics | wire.FeatureMasked | 1<<31, masked, true},
	} {
		s := newScript(t).up(func(h *wire.Hello) { h.Features = c.features })
		alone, both := s.op(abi.OpFetchAdd, 8), s.two(abi.OpWrite, c.args)
		alone.Op.Atomic = c.args
		s.hold = true
		s.c.Send(alone)
		s.c.Send(both)
		s.run()
		if c.ok {
			if n := len(s.posted()); n != 4 {
				t.Errorf("%s: %d requests", c.name, n)
			}
			continue
		}
		s.want(alone, msg.OpRefused)
		s.want(both, msg.OpRefused)
		if len(s.posted()) != 0 || alone.Bad != alone.Op || both.Bad != both.Op2 ||
			alone.WCStatus != verbs.WCLocQPOpErr || both.WCStatus != verbs.WCLocQPOpErr || s.local[both] {
			t.Errorf("%s: %d requests, statuses %d, %d", c.name, len(s.posted()), alone.WCStatus, both.WCStatus)
		}
	}
}

// An error completion names the operation it is about.
func TestSecondOperationFails(t *testing.T) {
	for _, second := range []bool{false, true} {
		s := newScript(t).up()
		before, m := s.op(abi.OpWrite, 16), s.two(abi.OpRead, rdmaop.AtomicArgs{})
		s.q.onRDMA = func(wr *verbs.SendWR) bool {
			return wr.Op == verbs.OpRDMAWrite || second && wr.Op == verbs.OpRDMARead
		}
		s.c.Send(before)
		s.c.Send(m)
		s.run()
		bad := m.Op
		if second {
			bad = m.Op2
		}
		if s.want(m, msg.OpFailed); m.Bad != bad || m.WCStatus != verbs.WCRemAccessErr || !s.local[m] {
			t.Errorf("second %v: names %v, status %d, local %v", second, m.Bad == m.Op2, m.WCStatus, s.local[m])
		}
	}
}

// A message whose time is up ends Withdrawn only if it can never arrive.
func TestGiveUp(t *testing.T) {
	s := newScript(t).up()
	end := func(what string, m *msg.Msg, o msg.Outcome, later bool) {
		t.Helper()
		if got, l := s.c.GiveUp(m); got != o || l != later {
			t.Errorf("%s: %v, later %v; want %v, %v", what, got, l, o, later)
		}
		if later {
			s.open(m)
		} else {
			s.want(m, o)
		}
	}
	posted := s.msg("posted")
	op := s.op(abi.OpWrite, 16)
	s.c.Send(op)
	s.run()
	s.frames()
	end("posted", posted, msg.GaveUp, false)
	end("posted operation", op, msg.GaveUp, false)

	s.hold = true
	under := s.op(abi.OpWrite, 16)
	s.c.Send(under)
	s.run()
	end("work requests under way", under, msg.GaveUp, true)
	if o, later := s.c.GiveUp(under); later {
		t.Errorf("twice: %v", o)
	}
	s.hold = false
	s.run()
	s.want(under, msg.GaveUp)
	if !s.local[under] {
		t.Error("ended before it was local")
	}

	refused := s.op(abi.OpWrite, 16)
	s.c.Send(refused)
	s.run()
	s.frames()
	s.cong(4)
	s.send(s.notice(wire.TypeRefused, refused.Track.Seq, 4))
	end("refused", refused, msg.Withdrawn, false)

	plain := s.msg("to be sent again")
	s.cong()
	s.run()
	s.frames()
	s.q.toErr(true)
	s.run()
	queued := s.msg("queued")
	end("queued", queued, msg.Withdrawn, false)
	end("broken off", plain, msg.GaveUp, false)
	s.dropRequests()
	s.raw = nil
	s.up(func(h *wire.Hello) { h.Ack = 0 })
	if f := s.frames(); len(f) != 0 {
		t.Errorf("sent after it was given up: %+v", f)
	}
}
