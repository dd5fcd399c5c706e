package conn

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/verbs"
)

func TestPostFailure(t *testing.T) {
	for name, accept := range map[string]int{"nothing": 0, "a part": 1} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t).up()
			op := s.op(abi.OpWrite, 16)
			plain := &msg.Msg{SPort: 3, DPort: 4}
			s.c.Send(op)
			s.dev.postFail = func([]verbs.SendWR) int { s.dev.postFail = nil; return accept }
			s.run()
			s.c.Send(plain)
			if s.c.State() == Up || !s.local[op] || len(s.downs) != 1 {
				t.Fatalf("%v, local %v, down %v", s.c.State(), s.local[op], s.downs)
			}
			s.open(op)
			s.dropRequests()
			s.up()
			s.want(op, msg.Dropped)
			if f := s.frames(); len(f) != 1 {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestDrainTimeout(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	op := s.op(abi.OpWrite, 16)
	s.c.Send(op)
	s.run()
	s.c.Reset(s.now, errors.New("x"))
	s.dev.cq = nil // a provider that never completes them
	s.c.CQEmpty(s.now)
	if s.c.State() != Error || s.local[op] {
		t.Fatalf("%v", s.c.State())
	}
	s.now = s.c.NextTimeout()
	s.c.Tick(s.now)
	if s.c.State() == Error || !s.local[op] {
		t.Errorf("%v, local %v", s.c.State(), s.local[op])
	}
}

func TestSendQueueRoom(t *testing.T) {
	s := newScript(t, func(c *Config) { c.MaxSendWR = 8; c.Attr.MaxSGE = 1 }).up()
	s.hold = true
	big := s.op(abi.OpWrite, 16) // 8 requests: never fits
	for len(big.Op.Segs) < 8 {
		big.Op.Segs = append(big.Op.Segs, big.Op.Segs[0])
	}
	s.c.Send(big)
	s.run()
	if s.want(big, msg.OpRefused); big.WCStatus != verbs.WCLocLenErr || big.Bad != big.Op {
		t.Errorf("status %d", big.WCStatus)
	}
	for range 20 {
		s.c.Send(s.op(abi.OpWrite, 16))
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
