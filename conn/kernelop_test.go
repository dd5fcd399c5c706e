package conn

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// An operation is settled when its message's SEND has completed. The message
// lives on, as a plain one.
func TestKernelOperation(t *testing.T) {
	for _, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead, abi.OpFetchAdd} {
		t.Run(kind.String(), func(t *testing.T) {
			s := newKernel(t)
			m := s.op(kind, 8)
			s.c.Send(m)
			s.run()
			if !s.placed[m] || !s.local[m] {
				t.Fatalf("placed %v, local %v", s.placed[m], s.local[m])
			}
			s.open(m)
			f := s.kernelFrames()
			if len(f) != 1 || f[0].Exts().RDMA != 1 || f[0].Exts().RDMAKeys[0] != m.Op.RKey() || f[0].Flags != wire.FlagAckRequired {
				t.Fatalf("%+v", f)
			}
			s.kernelAgain()
			if f = s.kernelFrames(); len(f) != 1 || f[0].Flags != wire.FlagAckRequired|wire.FlagRetransmitted || f[0].Exts().RDMA != 1 {
				t.Errorf("%+v", f)
			}
			s.send(frame(wire.Header{Ack: 100}, nil))
			s.want(m, msg.Acked)
		})
	}
}

// A peer that carried out atomics may come back as a kernel, before an atomic was posted.
func TestKernelAtomicNotCarried(t *testing.T) {
	s := newKernel(t)
	m := s.op(abi.OpFetchAdd, 8)
	s.c.Send(m)
	m.Track.Atomic = msg.Carried // it waited for room in the send queue
	s.run()
	if !s.placed[m] || m.Carried() {
		t.Errorf("placed %v, carried %v", s.placed[m], m.Carried())
	}
	s.send(frame(wire.Header{Ack: 100}, nil))
	s.want(m, msg.Acked)
}

// One whose completion does not come before the connection goes is open for ever.
func TestKernelOperationLost(t *testing.T) {
	s := newKernel(t)
	s.hold = true
	m := s.op(abi.OpWrite, 8)
	s.c.Send(m)
	plain := s.msg("plain")
	s.run()
	s.q.toErr(true)
	s.run()
	s.want(m, msg.Unknown)
	if s.placed[m] || !s.local[m] {
		t.Errorf("placed %v, local %v", s.placed[m], s.local[m])
	}
	s.hold = false
	s.dropRequests()
	s.kernelConnect()
	if f := s.kernelFrames(); len(f) != 1 || string(f[0].body) != "plain" {
		t.Errorf("%+v", f)
	}
	s.open(plain)
}

// A refused request ends its operation with the error, and proves of those
// behind it that they were not carried out.
func TestKernelOperationRefused(t *testing.T) {
	s := newKernel(t)
	good, bad, behind := s.op(abi.OpRead, 8), s.op(abi.OpRead, 16), s.op(abi.OpRead, 24)
	s.q.onRDMA = func(wr *verbs.SendWR) bool { return wr.SGL[0].Length != 16 }
	for _, m := range []*msg.Msg{good, bad, behind} {
		s.c.Send(m)
	}
	s.run()
	s.want(bad, msg.OpFailed)
	s.want(good, msg.Dropped) // its message never left
	s.want(behind, msg.Dropped)
	if bad.WCStatus != verbs.WCRemAccessErr || bad.Bad != bad.Op {
		t.Errorf("status %v of %p", bad.WCStatus, bad.Bad)
	}
	for _, m := range []*msg.Msg{good, bad, behind} {
		if !s.local[m] {
			t.Error("not locally complete")
		}
	}
}

func TestKernelSilent(t *testing.T) {
	s := newKernel(t)
	a, b := s.op(abi.OpWrite, 8), s.op(abi.OpRead, 8)
	a.Silent, b.Silent = true, true
	a.Data, b.Data = nil, nil
	s.c.Send(a)
	s.c.Send(b)
	s.run()
	if f := s.kernelFrames(); len(f) != 0 {
		t.Errorf("%+v", f)
	}
	s.want(a, msg.Acked)
	s.want(b, msg.Acked)
	if !s.placed[a] || !s.placed[b] || !s.local[a] || !s.local[b] {
		t.Error("not settled")
	}
	// Among others.
	c, d := s.op(abi.OpWrite, 8), s.op(abi.OpWrite, 8)
	c.Silent, c.Data = true, nil
	s.c.Send(c)
	s.c.Send(d)
	s.run()
	if f := s.kernelFrames(); len(f) != 1 {
		t.Errorf("%+v", f)
	}
	s.want(c, msg.Acked)
	s.open(d)
	// The last one's error is its own.
	bad := s.op(abi.OpRead, 8)
	bad.Silent, bad.Data = true, nil
	s.q.onRDMA = func(*verbs.SendWR) bool { return false }
	s.c.Send(bad)
	s.run()
	s.want(bad, msg.OpFailed)
	if bad.Bad != bad.Op {
		t.Error("another operation is named")
	}
}

// A device whose completions say nothing of the peer leaves it to the ack.
func TestKernelNotPlaced(t *testing.T) {
	s := newScript(t, mayBeKernel)
	s.kernelConnect()
	s.skip()
	m, silent := s.op(abi.OpWrite, 8), s.op(abi.OpWrite, 8)
	silent.Silent, silent.Data = true, nil
	s.c.Send(m)
	s.c.Send(silent)
	s.run()
	s.want(silent, msg.OpRefused)
	s.open(m)
	if len(s.placed) != 0 || !s.local[m] {
		t.Error("settled by a completion")
	}
	s.send(frame(wire.Header{Ack: 100}, nil))
	s.want(m, msg.Acked)
	m = s.op(abi.OpWrite, 8)
	s.c.Send(m)
	s.run()
	s.kernelAgain()
	s.want(m, msg.Unknown)
}

// An operation with a long message, and what is cancelled meanwhile.
func TestKernelLongOperation(t *testing.T) {
	for _, registered := range []bool{false, true} {
		s := newKernel(t)
		m := s.op(abi.OpRead, 64)
		m.Data = make([]byte, 300_000)
		if registered {
			m.LKey = s.dev.reg(m.Data)
		}
		s.c.Send(m)
		s.run()
		if f := s.kernelFrames(); len(f) != 74 || f[73].Exts().RDMA != 1 || !s.placed[m] {
			t.Errorf("%d frames, placed %v", len(f), s.placed[m])
		}
		s.hold = true
		c := &msg.Msg{SPort: 3, DPort: 4, Data: make([]byte, 100_000)}
		s.c.Send(c)
		s.run()
		s.c.Cancel(c, msg.Cancelled)
		s.hold = false
		s.run()
		s.want(c, msg.Cancelled)
		if f := s.kernelFrames(); len(f) != 25 {
			t.Errorf("%d frames: a message once begun is finished", len(f))
		}
		s.open(m)
	}
}
