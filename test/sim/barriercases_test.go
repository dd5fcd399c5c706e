package sim

import (
	"context"
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

// struck returns a case in which the connection breaks at a point, with k operations in
// progress. The mark passes all of them while there is no connection. They get their statuses
// after the next handshake.
func struck(kind abi.OpKind, k, imm int, p sim.PointKind, nth int, want rds.Status) func(*script) {
	return func(s *script) {
		s.slow()
		s.arm(p, nth, sim.Break)
		s.issue(s.a, k, kind, imm, false)
		s.run(100e6)
		if !s.hit {
			s.t.Fatal("the point was never passed")
		}
		s.mark(k)
		if want == rds.Dropped && len(s.fates()) > 0 {
			s.t.Errorf("statuses %v before the handshake", s.fates())
		}
		s.mend()
		s.drain()
		s.want(want, k)
	}
}

// inSetup returns a case in which the connection breaks while it is being set up. The mark
// stays, because nothing was posted. With the next connection all operations run.
func inSetup(p sim.PointKind) func(*script) {
	return func(s *script) {
		engine.ResetPeers(s.a.h.e, s.b.ap.Addr(), nil, nil)
		s.a.h.kick()
		s.run(50e3) // the connection drains
		s.cut()
		s.run(10e6)
		s.issue(s.a, 3, abi.OpWrite, 10, false)
		s.arm(p, 1, sim.Break)
		s.mend()
		for i := 0; i < 2000 && !s.hit; i++ {
			s.run(1e6)
		}
		if !s.hit {
			s.t.Fatal("the point was never passed")
		}
		s.run(100e6)
		s.mark(0)
		s.want(rds.Success, 0)
		s.mend()
		s.drain()
		s.mark(3)
		s.want(rds.Success, 3)
	}
}

func simple(kind abi.OpKind, imm int, silent bool) func(*script) {
	return func(s *script) {
		s.issue(s.a, 4, kind, imm, silent)
		s.drain()
		s.mark(4)
		s.want(rds.Success, 4)
	}
}

// crashedAt returns a case in which the peer dies at a point. The mark passes the operations
// when the connection has drained. When the peer's next instance is there, their status is
// UNKNOWN.
func crashedAt(p sim.PointKind, nth int) func(*script) {
	return func(s *script) {
		s.arm(p, nth, sim.CrashResponder)
		s.issue(s.a, 3, abi.OpWrite, 10, false)
		s.run(30e6)
		s.mark(3)
		s.mend()
		s.drain()
		s.want(rds.Unknown, 3)
	}
}

var barrierCases = []struct {
	name string
	do   func(*script)
}{
	{"write, payload immediate data", simple(abi.OpWrite, 100, false)},
	{"write, empty immediate data", func(s *script) {
		for i := 1; i <= 3; i++ {
			s.issue(s.a, 1, abi.OpWrite, 0, false)
			s.drain()
			s.mark(i)
		}
		s.want(rds.Success, 3)
	}},
	{"read", simple(abi.OpRead, 100, false)},
	{"silent write", simple(abi.OpWrite, 0, true)},
	{"silent read", simple(abi.OpRead, 0, true)},
	{"silent, with something to deliver", simple(abi.OpWrite, 10, true)},
	{"large immediate data", simple(abi.OpWrite, 100_000, false)},

	{"break before the write is placed", struck(abi.OpWrite, 5, 10, sim.BeforeWrite, 2, rds.Dropped)},
	{"break after a write was placed", struck(abi.OpWrite, 5, 10, sim.AfterWritePlaced, 3, rds.Dropped)},
	{"break before the message is delivered", struck(abi.OpWrite, 5, 10, sim.BeforeSendDelivered, 1, rds.Dropped)},
	{"break after the message was delivered", struck(abi.OpWrite, 5, 10, sim.AfterSendDelivered, 1, rds.Success)},
	{"break before a read is served", struck(abi.OpRead, 5, 10, sim.BeforeReadSampled, 2, rds.Dropped)},
	{"break after a read was served", struck(abi.OpRead, 5, 10, sim.AfterReadSampled, 5, rds.Dropped)},
	{"break between the fragments of immediate data", struck(abi.OpWrite, 1, 200_000, sim.AfterSendDelivered, 3, rds.Dropped)},
	{"break before a completion", func(s *script) {
		s.arm(sim.BeforeCompletion, 1, sim.Break)
		s.issue(s.a, 5, abi.OpWrite, 10, false)
		s.run(100e6)
		s.mark(5)
		s.mend()
		s.drain()
		if got := s.fates(); got[rds.Success]+got[rds.Dropped] != 5 {
			s.t.Errorf("statuses %v", got)
		}
	}},
	{"break with the send queue full", func(s *script) {
		const k = 1400
		s.slow()
		s.arm(sim.AfterWritePlaced, 900, sim.Break)
		s.issue(s.a, k, abi.OpWrite, 4, false)
		s.run(100e6)
		mark := int(s.a.s.HWM(s.b.ap.Addr()))
		if mark < 900 || mark == k {
			s.t.Errorf("mark is %d: what was posted rises, what was not stays", mark)
		}
		s.mend()
		s.drain()
		s.mark(k)
		s.either(k)
	}},
	{"post fails", func(s *script) {
		s.net.Faults.PostFail = 1e6
		s.cut()
		s.issue(s.a, 3, abi.OpWrite, 10, false)
		s.run(100e6)
		s.mark(3)
		s.net.Faults.PostFail = 0
		s.mend()
		s.drain()
		s.want(rds.Dropped, 3)
	}},
	{"posts fail in the middle of a chain", func(s *script) {
		s.net.Faults.PostFail = 300_000
		s.issue(s.a, 20, abi.OpWrite, 10, false)
		s.run(20e6)
		s.net.Faults.PostFail = 0
		s.drain()
		s.mark(20)
		s.either(20)
	}},

	{"only queued", func(s *script) {
		engine.ResetPeers(s.a.h.e, s.b.ap.Addr(), nil, nil)
		s.cut()
		s.run(10e6)
		s.issue(s.a, 3, abi.OpWrite, 10, false)
		s.run(200e6)
		s.mark(0) // the mark must not pass them: they are pending
		s.mend()
		s.drain()
		s.mark(3)
		s.want(rds.Success, 3)
	}},
	{"break as the connection is requested", inSetup(sim.ConnectRequest)},
	{"break as the connection is accepted", inSetup(sim.ConnectReply)},
	{"break as the connection is confirmed", inSetup(sim.ConnectReady)},

	{"peer crashes after the write", crashedAt(sim.AfterWritePlaced, 3)},
	{"peer crashes before the message", crashedAt(sim.BeforeSendDelivered, 1)},
	{"peer crashes after the message", crashedAt(sim.AfterSendDelivered, 1)},
	{"own crash in the middle", func(s *script) {
		s.arm(sim.AfterWritePlaced, 2, sim.CrashRequester)
		s.issue(s.a, 3, abi.OpWrite, 10, false)
		s.run(10e6)
		s.mend()
		s.drain()
		s.want(rds.Success, 0)
	}},
	{"peer gone for good", func(s *script) {
		s.arm(sim.AfterWritePlaced, 2, sim.Break)
		s.issue(s.a, 3, abi.OpWrite, 10, false)
		s.run(100e6)
		s.mark(3)
		s.opt.settleTimeout = 0 // so that the checkers accept UNKNOWN
		s.run(31e9)
		s.want(rds.Unknown, 3)
		s.mend()
	}},

	{"cancel of what is queued", func(s *script) {
		engine.ResetPeers(s.a.h.e, s.b.ap.Addr(), nil, nil)
		s.cut()
		s.run(10e6)
		s.issue(s.a, 3, abi.OpWrite, 10, false)
		s.run(1e6)
		s.cancel(s.a.flow(s.b.ap))
		s.run(1e6)
		s.mark(3)
		s.want(rds.Canceled, 3)
		s.mend()
	}},
	{"cancel of what is in flight", func(s *script) {
		s.issue(s.a, 3, abi.OpWrite, 10, false)
		s.run(3e3)
		s.cancel(s.a.flow(s.b.ap))
		s.drain()
		s.mark(3)
		if got := s.fates(); got[rds.Canceled]+got[rds.Success] != 3 {
			s.t.Errorf("statuses %v", got)
		}
	}},
	{"close with operations in flight", func(s *script) {
		s.issue(s.a, 20, abi.OpWrite, 10, false)
		s.run(3e3)
		s.a.close()
		s.drain()
	}},
	{"release with operations in flight", func(s *script) {
		s.issue(s.a, 20, abi.OpWrite, 10, false)
		s.run(8e3)
		s.r.release()
		s.drain()
		s.mark(20)
		if got := s.fates(); got[rds.Success]+got[rds.RemoteError] != 20 {
			s.t.Errorf("statuses %v", got)
		}
	}},

	{"refused among others", func(s *script) {
		s.issue(s.a, 2, abi.OpWrite, 10, false)
		other := s.b.register(100, rds.AllowRead)
		s.r, other = other, s.r
		s.issue(s.a, 1, abi.OpRead, 10, false) // not granted
		s.ops[2].refusable = 22
		s.r = other
		s.issue(s.a, 2, abi.OpWrite, 10, false)
		s.drain()
		s.mark(5)
		if got := s.fates(); got[rds.Success] != 4 || got[rds.RemoteError] != 1 {
			s.t.Errorf("statuses %v, want 4 successes and one refusal", got)
		}
	}},
	{"two sockets to one peer", func(s *script) {
		s.issue(s.a, 1, abi.OpWrite, 10, false)
		s.issue(s.a2, 7, abi.OpWrite, 10, false)
		s.drain()
		s.mark(1)
		if got := s.a2.s.HWM(s.b.ap.Addr()); got != 7 {
			s.t.Errorf("mark of the second socket is %d, want 7", got)
		}
	}},
	{"many, and a wait for the last", func(s *script) {
		s.issue(s.a, 500, abi.OpWrite, 4, false)
		s.drain()
		ctx, end := context.WithCancel(context.Background())
		end() // Barrier must not have to wait
		hwm, err := s.a.s.Barrier(ctx, s.b.ap.Addr(), 500)
		if hwm != 500 || err != nil {
			s.t.Errorf("barrier: %d, %v", hwm, err)
		}
		s.want(rds.Success, 500)
	}},
	{"wait for an id that was not issued", func(s *script) {
		s.issue(s.a, 1, abi.OpWrite, 4, false)
		if _, err := s.a.s.Barrier(context.Background(), s.b.ap.Addr(), 2); !errors.Is(err, rds.ErrInvalid) {
			s.t.Errorf("barrier: %v, want %v", err, rds.ErrInvalid)
		}
		s.drain()
	}},
}

// explain reports a broken rule, with the events that led to it, as an error of the test.
func (s *script) explain() {
	switch p := recover().(type) {
	case nil:
	case *violation:
		s.t.Errorf("%v\n%s", p, s.hist.String())
	default:
		panic(p)
	}
}

// TestBarrierCases has operations end in every way there is and checks the high-water mark. The
// checkers spoil each buffer when the mark passes it. Nothing may be left when a case ends.
func TestBarrierCases(t *testing.T) {
	for _, c := range barrierCases {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			defer s.explain()
			c.do(s)
			s.mend()
			if !t.Failed() {
				s.finish()
			}
		})
	}
}
