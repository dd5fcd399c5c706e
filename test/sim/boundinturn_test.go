package sim

import (
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
)

// TestBoundInTurn closes a socket whose messages and statuses the daemon has written into the
// event ring and not yet published. The process binds another socket at once, which gets the
// same index. Nothing of the old socket may reach the new one: the checkers know what each
// socket may receive.
func TestBoundInTurn(t *testing.T) {
	for _, c := range []struct {
		name               string
		messages, statuses int
	}{
		{"messages", 3, 0},
		{"statuses", 0, 3},
		{"both", 2, 2},
	} {
		for seed := uint64(1); seed <= 8; seed++ {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				s := newScriptWith(t, seed, func(*options) {})
				defer s.explain()
				s.boundInTurn(c.messages, c.statuses)
				s.finish()
			})
		}
	}
}

func (s *script) boundInTurn(messages, statuses int) {
	c := s.a2.c
	forbidden := s.b.register(100, rds.AllowWrite) // granted without the right to read, so a read of it is refused at once
	s.b.expose(forbidden, s.a2.ap)
	s.drain()
	c.carve(4096, 1) // now, so that the process need not ask for memory later
	for range s.rWork.IntN(3) {
		s.a.send(s.a2.ap, 20, extra{})
		s.run(below(s.rWork, 5000))
	}
	// No turn is in progress from here on: it would take what is submitted.
	s.endTurns()
	s.opt.held = 100
	s.r = forbidden
	told := min(messages, 1) + statuses // the messages are one run
	for messages+statuses > 0 {
		if s.rWork.IntN(messages+statuses) < messages {
			s.a.send(s.a2.ap, 20, extra{})
			messages--
		} else {
			s.issue(s.a2, 1, abi.OpRead, 10, false)
			s.ops[len(s.ops)-1].refusable = 13
			statuses--
		}
	}
	s.a2.close()
	if n := c.at.Unpublished(); n < told {
		s.t.Fatalf("the socket has closed with %d events to be published, want %d: the test shows nothing", n, told)
	}
	e := c.bind(500)
	e.poll()
	c.alive()
	s.drain()
	s.a.send(e.ap, 20, extra{})
	s.drain()
}
