package conn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// narrowScript is a script whose own queue pairs are over TCP, of which path is the state. asked has the segment size
// of each attempt.
type narrowScript struct {
	*script
	path  verbs.Path
	asked []int
}

func newNarrow(t *testing.T) *narrowScript {
	s := &narrowScript{script: newScript(t, func(c *Config) { c.Silence = 20 * second })}
	s.c.host = checked(&s.c.calls, s)
	return s
}

func (s *narrowScript) Dial(c *Conn, qp verbs.QP, private []byte) error {
	s.asked = append(s.asked, c.Segment())
	qp.(*fakeQP).path = &s.path
	return s.script.Dial(c, qp, private)
}

// breaks lets d pass after which the connection is to have ended for why, and the Conn asks for another one.
func (s *narrowScript) breaks(d int64, why error) {
	s.t.Helper()
	n := len(s.downs)
	s.ticks(d)
	if len(s.downs) != n+1 || !errors.Is(s.downs[n], why) {
		s.t.Fatalf("down %v, want %v", s.downs[n:], why)
	}
}

// last is the segment size that the Conn has asked for last.
func (s *narrowScript) last() int {
	s.t.Helper()
	if len(s.asked) == 0 {
		s.t.Fatal("nothing was dialled")
	}
	return s.asked[len(s.asked)-1]
}

// dialled completes the Conn's own attempt.
func (s *narrowScript) dialled() {
	s.t.Helper()
	s.answer()
	s.hello()
	if !s.c.Ready() {
		s.t.Fatalf("not ready: %v", s.lastTrace)
	}
}

// A peer whose TCP has stopped to acknowledge large segments and says nothing any more is connected with smaller ones, and with
// full ones again when some time has passed.
func TestNarrowAfterSilence(t *testing.T) {
	s := newNarrow(t)
	s.msg("x")
	s.run()
	s.dialled()
	s.path = verbs.Path{Stuck: true, Acked: 100}
	for i, want := range []int{segmentIPv6, segmentIPv4, segmentIPv4} {
		s.breaks(21*second, ErrSilent)
		if s.last() != want {
			t.Fatalf("break %d: segments of %d, want %d", i, s.last(), want)
		}
		if before := []int{0, segmentIPv6, segmentIPv4}[i]; s.c.Narrowed() != before {
			t.Errorf("break %d: %d before it connects, want %d", i, s.c.Narrowed(), before)
		}
		s.dialled()
		if s.c.Narrowed() != want {
			t.Errorf("break %d: narrowed to %d, want %d", i, s.c.Narrowed(), want)
		}
	}
	s.path = verbs.Path{}
	s.send(frame(wire.Header{Ack: s.c.out.nextTx - 1}, nil))
	s.msg("y")
	s.run()
	s.now += wideAfter - 30*second
	s.q.toErr(true)
	s.run()
	if s.last() != segmentIPv4 {
		t.Errorf("a break in time: segments of %d", s.last())
	}
	s.dialled()
	s.now += wideAfter
	s.q.toErr(true)
	s.run()
	if s.last() != 0 || s.c.Narrowed() != 0 {
		t.Errorf("a break after %v: segments of %d, narrowed %d", wideAfter, s.last(), s.c.Narrowed())
	}
}

// While the peer is heard of, two looks at a TCP that is stuck suffice. That something sent later once arrived is not enough: the
// peer may have been away since. Nor is that this side did not read.
func TestNarrowWhileHeard(t *testing.T) {
	for _, tc := range []struct {
		name   string
		each   func(s *narrowScript)
		passes bool
		why    error
	}{
		{"heard", func(s *narrowScript) { s.send(frame(wire.Header{}, nil)) }, false, ErrLarge},
		{"passed once", func(*narrowScript) {}, true, ErrSilent},
		{"not read for a while", func(s *narrowScript) {
			if s.now < 8*second {
				s.c.Excuse(s.now, true)
				s.c.Excuse(s.now, false)
			}
		}, false, ErrSilent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newNarrow(t)
			s.msg("x")
			s.run()
			s.dialled()
			s.path = verbs.Path{Stuck: true, Acked: 100, Passes: tc.passes}
			for i := 0; s.c.State() == Up; i++ {
				if i == 40 {
					t.Fatal("it goes on")
				}
				tc.each(s)
				s.ticks(second)
			}
			if !errors.Is(s.downs[0], tc.why) || s.last() != segmentIPv6 {
				t.Errorf("down %v, segments of %d", s.downs, s.last())
			}
		})
	}
}

// unreachable ends the Conn's attempt, as if nothing had answered, and lets it make the next one.
func (s *narrowScript) unreachable() {
	s.t.Helper()
	s.c.HandleCM(s.now, &verbs.CMEvent{Type: verbs.CMUnreachable, QP: s.c.link.qp, Err: errors.New("no answer")})
	s.run()
	s.ticks(2 * second)
}

// Smaller segments stay only where small packets pass at once. After an outage the next connection has the segments of
// the last that did.
func TestNarrowTrial(t *testing.T) {
	s := newNarrow(t)
	s.msg("x")
	s.run()
	s.dialled()
	s.path.Stuck = true
	s.breaks(21*second, ErrSilent)
	s.path = verbs.Path{Again: true} // the outage ends while it connects
	s.answer()
	s.ticks(second)
	if s.last() != 0 || s.c.Narrowed() != 0 {
		t.Fatalf("after an outage: segments of %d, narrowed to %d", s.last(), s.c.Narrowed())
	}
	s.dialled()
	s.path = verbs.Path{Stuck: true}
	s.breaks(21*second, ErrSilent)
	s.dialled()
	if s.c.Narrowed() != segmentIPv6 {
		t.Fatalf("narrowed to %d", s.c.Narrowed())
	}
	s.breaks(21*second, ErrSilent)
	if s.last() != segmentIPv4 {
		t.Fatalf("segments of %d", s.last())
	}
	s.unreachable()
	if s.last() != segmentIPv6 || s.c.Narrowed() != segmentIPv6 {
		t.Errorf("an outage between narrow connections: segments of %d, narrowed to %d", s.last(), s.c.Narrowed())
	}
	s.path.Again = true // no trial
	s.dialled()
	if s.last() != segmentIPv6 {
		t.Errorf("segments of %d", s.last())
	}
}

// If the peer connects, the size that it has asked for is what counts: of smaller segments the next are smaller yet. And what was found
// out long ago is forgotten.
func TestNarrowAsked(t *testing.T) {
	s := newNarrow(t)
	connected := func(segment int) {
		t.Helper()
		q := s.peer.newQP(64)
		s.peer.dial(q, addrB, addrA, s.private())
		s.dev.cm[len(s.dev.cm)-1].Segment = segment
		s.run()
		s.q = q
		s.hello()
		s.c.link.qp.(*fakeQP).path = &s.path
		if !s.c.Ready() {
			t.Fatalf("not ready: %v", s.lastTrace)
		}
	}
	connected(segmentIPv6 - 12)
	s.msg("x")
	s.run()
	s.path.Stuck = true
	s.breaks(21*second, ErrSilent)
	if s.last() != segmentIPv4 {
		t.Errorf("segments of %d", s.last())
	}
	s.dialled()
	if s.c.Narrowed() != segmentIPv4 {
		t.Errorf("narrowed to %d", s.c.Narrowed())
	}
	s.path.Stuck = false
	s.send(frame(wire.Header{Ack: s.c.out.nextTx - 1}, nil)) // nothing to send any more
	s.q.toErr(true)
	s.run()
	if s.c.State() != Down || s.c.Narrowed() != segmentIPv4 {
		t.Fatalf("%v, narrowed to %d", s.c.State(), s.c.Narrowed())
	}
	connected(1448)
	if s.c.Narrowed() != 0 {
		t.Errorf("narrowed to %d with the full segments of the peer's request", s.c.Narrowed())
	}
	s.q.toErr(true)
	s.now += wideAfter
	s.run()
	connected(1448)
	s.q.toErr(true)
	s.run()
	if s.c.Narrowed() != 0 {
		t.Errorf("narrowed to %d for good", s.c.Narrowed())
	}
}

// A connection is not given up for its segments if TCP goes on, and one that is silent with nothing large on its way is not
// made with smaller ones. Nor is a peer that cannot be connected to at all.
func TestNarrowForNothing(t *testing.T) {
	t.Run("TCP goes on", func(t *testing.T) {
		s := newNarrow(t)
		s.msg("x")
		s.run()
		s.dialled()
		for range 30 {
			s.path = verbs.Path{Stuck: true, Acked: s.path.Acked + 1}
			s.send(frame(wire.Header{}, nil))
			s.ticks(second)
		}
		if s.c.State() != Up {
			t.Errorf("%v, %v", s.c.State(), s.lastTrace)
		}
	})
	t.Run("nothing large", func(t *testing.T) {
		s := newNarrow(t)
		s.msg("x")
		s.run()
		s.dialled()
		if s.breaks(21*second, ErrSilent); s.last() != 0 {
			t.Errorf("segments of %d", s.last())
		}
	})
	t.Run("not connected", func(t *testing.T) {
		s := newNarrow(t)
		s.msg("x")
		s.run()
		s.dialled()
		s.path.Stuck = true
		s.breaks(21*second, ErrSilent)
		if s.last() != segmentIPv6 {
			t.Fatalf("segments of %d", s.last())
		}
		s.unreachable()
		if s.last() != 0 {
			t.Errorf("segments of %d after an attempt that nothing answered", s.last())
		}
	})
	t.Run("the handshake", func(t *testing.T) {
		s := newNarrow(t)
		s.msg("x")
		s.run()
		s.c.HandleCM(s.now, &verbs.CMEvent{Type: verbs.CMUnreachable, QP: s.c.link.qp, Err: fmt.Errorf("handshake: %w", verbs.ErrLarge)})
		s.run()
		s.ticks(2 * second)
		if s.last() != segmentIPv6 {
			t.Errorf("segments of %d after a handshake that large packets did not pass", s.last())
		}
	})
}

// A side that needs smaller segments refuses the peer's requests for larger ones for crossTime, and asks itself. A request
// for as small ones is taken, whichever side's address is smaller.
func TestNarrowRefuses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		segment int
		refused bool
	}{{"full", 1448, true}, {"as small", segmentIPv6 - 12, false}, {"not known", 0, false}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newNarrow(t)
			s.msg("x")
			s.run()
			s.dialled()
			s.path.Stuck = true
			s.ticks(19 * second)
			s.hold = true // the break ends when what is posted has
			s.ticks(2 * second)
			request := func() (refused bool) {
				q := s.peer.newQP(64)
				s.peer.dial(q, addrB, addrA, s.private())
				ev := s.dev.cm[len(s.dev.cm)-1]
				s.dev.cm = s.dev.cm[:len(s.dev.cm)-1]
				s.c.link.active = false // as if ours had not been first
				if s.c.State() == Connecting {
					s.c.abandon(ErrTimeout)
				}
				s.c.HandleRequest(s.now, ev.Req, tc.segment, ev.Private)
				s.run()
				for _, ev := range s.peer.cm {
					if ev.QP == q && ev.Type == verbs.CMRejected {
						r, ok := wire.ParseReject(ev.Private)
						refused = ok && r.Crossed
					}
				}
				return refused
			}
			n := len(s.asked)
			if got := request(); got != tc.refused {
				t.Fatalf("refused %v, want %v", got, tc.refused)
			}
			if tc.refused && (len(s.asked) != n+1 || s.last() != segmentIPv6) {
				t.Errorf("asked for %v", s.asked[n:])
			}
			s.now += crossTime - 1
			if tc.refused && !request() { // ours and the first have crossed, and the peer has refused ours
				t.Error("a second request in time is not refused")
			}
			s.now++
			if tc.refused && request() {
				t.Error("a request is refused later, too")
			}
		})
	}
}
