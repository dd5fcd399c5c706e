package conn

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

const second = 1_000_000_000

// quietScript is a connection whose peer may be silent for 20 s.
func quietScript(t *testing.T) *script {
	return newScript(t, func(c *Config) { c.Silence = 20 * second }).up()
}

// ticks lets d nanoseconds pass, by the connection's own timers, and returns how
// many of them were due.
func (s *script) ticks(d int64) (n int) {
	s.t.Helper()
	for end := s.now + d; ; n++ {
		at := s.c.NextTimeout()
		if at == 0 || at > end {
			s.now = end
			return n
		}
		if n > 1000 {
			s.t.Fatal("timers without end")
		}
		s.now = max(s.now, at)
		s.c.Tick(s.now)
		s.run()
	}
}

// probes counts the pings from port 0 among the frames.
func (s *script) probes() (n int) {
	for _, f := range s.frames() {
		if f.SPort == 0 && f.DPort == 0 && f.Flags&wire.FlagAckRequired != 0 && len(f.body) == 1 {
			n++
		}
	}
	return n
}

// A peer that owes an answer and sends nothing is asked, and then given up. What
// it owes an answer for does not matter.
func TestSilence(t *testing.T) {
	for _, c := range []struct {
		name string
		owe  func(s *script)
	}{
		{"a message", func(s *script) { s.c.Send(&msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("x")}); s.run() }},
		{"a cancelled operation", func(s *script) {
			s.hold = true
			m := s.op(abi.OpRead, 16)
			s.c.Send(m)
			s.run()
			s.c.Cancel(m, msg.Cancelled)
			if s.local[m] {
				t.Fatal("local while its request is outstanding")
			}
		}},
		{"a refused message", func(s *script) {
			m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("x")}
			s.c.Send(m)
			s.run()
			s.c.cong.remote.Set(4)
			s.send(s.notice(wire.TypeRefused, m.Track.Seq, 4))
			if s.c.Info().Stopped != 1 {
				t.Fatal("the message is not held back")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := quietScript(t)
			c.owe(s)
			s.probes()
			s.ticks(19 * second)
			if s.c.State() != Up {
				t.Fatalf("%v after 19 s: %v", s.c.State(), s.lastTrace)
			}
			if n := s.probes(); n != 1 && !s.hold {
				t.Errorf("%d probes, want one that is not answered", n)
			}
			s.ticks(2 * second)
			if len(s.downs) != 1 || !errors.Is(s.downs[0], ErrSilent) {
				t.Fatalf("after 21 s down %v", s.downs)
			}
			for m := range s.done {
				if m.Op != nil && !s.local[m] {
					t.Error("the operation is not locally complete")
				}
			}
			if s.c.quiet.probe != nil {
				t.Error("the probe is still queued")
			}
		})
	}
}

// A peer that answers stays, and one that owes nothing is left alone.
func TestSilenceAnswered(t *testing.T) {
	s := quietScript(t)
	m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("x")}
	s.c.Send(m)
	s.run()
	for range 10 {
		s.ticks(15 * second)
		s.send(frame(wire.Header{}, nil)) // an ack of nothing: alive
	}
	if s.c.State() != Up {
		t.Fatalf("a peer that is heard of every 15 s: %v, %v", s.c.State(), s.lastTrace)
	}
	s.send(frame(wire.Header{Ack: s.c.out.nextTx - 1}, nil))
	s.want(m, msg.Acked)
	s.ticks(6 * second)
	s.probes()
	if n := s.ticks(1000 * second); n > 0 || s.probes() > 0 || s.c.State() != Up {
		t.Errorf("nothing is outstanding: %d timers, %v", n, s.c.State())
	}
	// The time begins with what is owed, not with what was heard last.
	s.c.Send(&msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("y")})
	s.run()
	if s.ticks(19 * second); s.c.State() != Up {
		t.Errorf("19 s after the message: %v", s.lastTrace)
	}
}

// A peer that the host does not read may be silent, and so may every peer when
// the limit is lifted; a lower limit holds at once.
func TestSilenceExcused(t *testing.T) {
	s := quietScript(t)
	s.c.Send(&msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("x")})
	s.run()
	s.c.Excuse(s.now, true)
	if s.ticks(100 * second); s.c.State() != Up {
		t.Fatalf("while it was not read: %v", s.lastTrace)
	}
	s.c.Excuse(s.now, false)
	if s.ticks(19 * second); s.c.State() != Up {
		t.Fatalf("19 s after it was read again: %v", s.lastTrace)
	}
	s.c.SetSilence(s.now, 0)
	if s.ticks(1000 * second); s.c.State() != Up {
		t.Fatalf("without a limit: %v", s.lastTrace)
	}
	s.c.SetSilence(s.now, 3*second)
	if s.ticks(2 * second); s.c.State() != Up {
		t.Fatalf("2 s after the limit of 3: %v", s.lastTrace)
	}
	if s.ticks(2 * second); len(s.downs) != 1 {
		t.Errorf("4 s after the limit of 3: %v", s.c.State())
	}
}

// A host that slept for longer than the limit does not blame the peer.
func TestSilenceOwnSleep(t *testing.T) {
	s := quietScript(t)
	s.c.Send(&msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("x")})
	s.run()
	s.now += 100 * second
	s.c.Tick(s.now)
	s.run()
	if s.c.State() != Up {
		t.Fatalf("in its first moment awake: %v", s.lastTrace)
	}
	if s.ticks(21 * second); len(s.downs) != 1 {
		t.Errorf("21 s later: %v", s.c.State())
	}
}
