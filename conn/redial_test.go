package conn

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
)

func TestBackoff(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Rand = func() uint64 { return 1<<63 - 1 } })
	s.up()
	s.msg("x")
	s.run()
	s.q.toErr(true)
	s.run()
	if s.c.State() != Connecting {
		t.Fatalf("after a drop: %v, the first retry is at once", s.c.State())
	}
	ceiling := int64(1e6)
	for i := range 14 {
		s.peer.rejectReq(s.request(), wire.Rejected(wire.NotSaid))
		s.run()
		if s.c.State() != Down || !errors.Is(s.c.Info().LastError, ErrRejected) {
			t.Fatalf("try %d: %v, %v", i, s.c.State(), s.c.Info().LastError)
		}
		if d, want := s.c.NextTimeout()-s.now, 1+(1<<63-1)%ceiling; d != want {
			t.Fatalf("try %d: waits %d, want %d", i, d, want)
		}
		if s.c.NeedFlush() {
			t.Fatal("Flush would not wait")
		}
		ceiling = min(2*ceiling, 1e9)
		s.now = s.c.NextTimeout()
		s.c.Tick(s.now)
	}
	if s.c.State() != Connecting {
		t.Fatalf("%v", s.c.State())
	}
	s.answer()
	s.hello()
	s.q.toErr(true)
	s.run()
	if s.c.State() != Connecting {
		t.Errorf("after another drop: %v, back-off was not reset", s.c.State())
	}
}

// TestBackoffOfSilence: the delay counts from the begin of an attempt. One that nobody has answered
// until its time limit is followed by the next at once.
func TestBackoffOfSilence(t *testing.T) {
	for _, took := range []int64{0, 3e8, 5e9} {
		s := newScript(t, func(c *Config) { c.Rand = func() uint64 { return 5e8 } })
		s.msg("x")
		s.run()
		for range 12 { // the ceiling is at its most
			s.peer.rejectReq(s.request(), wire.Rejected(wire.NotSaid))
			s.run()
			s.now = s.c.NextTimeout()
			s.c.Tick(s.now)
		}
		s.now += took
		if took == s.c.cfg.ConnectTimeout {
			s.c.Tick(s.now)
		} else {
			s.peer.rejectReq(s.request(), wire.Rejected(wire.NotSaid))
		}
		s.run()
		if d, want := s.c.NextTimeout()-s.now, max(5e8+1-took, 1); s.c.State() != Down || d != want {
			t.Errorf("after an attempt of %d ns: %v, waits %d, want %d", took, s.c.State(), d, want)
		}
	}
}

func TestIdleStaysDown(t *testing.T) {
	s := newScript(t).up()
	s.q.toErr(true)
	s.run()
	if s.c.State() != Down || s.c.NextTimeout() != 0 || s.c.NeedFlush() {
		t.Errorf("idle: %v, timer %d", s.c.State(), s.c.NextTimeout())
	}
	if len(s.downs) != 1 || !errors.Is(s.downs[0], ErrDisconnected) {
		t.Errorf("PeerDown %v", s.downs)
	}
	s.msg("x")
	s.run()
	if s.c.State() != Connecting {
		t.Errorf("a send on Down: %v", s.c.State())
	}
}

// A peer that is only owed a notice is connected to for a while, and is idle then. It gets the
// notice when it comes.
func TestOwedNotice(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Rand = func() uint64 { return 1<<63 - 1 } }).up()
	s.verdict = func(*wire.Header) Verdict { return NoSocket }
	s.send(s.data("x"))
	s.frames()
	lost := s.now
	s.q.toErr(true)
	s.run()
	for n := 0; s.c.State() != Down || s.c.NextTimeout() != 0; n++ {
		if n == 1000 {
			t.Fatalf("still connects after %d ns", s.now-lost)
		}
		if s.c.State() == Connecting {
			s.peer.rejectReq(s.request(), wire.Rejected(wire.NotSaid))
			s.run()
			continue
		}
		s.now = s.c.NextTimeout()
		s.c.Tick(s.now)
		s.run()
	}
	if d := s.now - lost; d < owesFor || d > owesFor+2*s.c.cfg.MaxBackoff {
		t.Errorf("connected for %d ns", d)
	}
	if _, idle := s.c.IdleSince(); !idle || s.c.NeedFlush() {
		t.Errorf("idle %v, would connect %v", idle, s.c.NeedFlush())
	}
	if _, ok := s.c.Past(); ok {
		t.Error("may be dropped without the notice")
	}
	s.msg("y") // what the host wants is a reason
	s.run()
	s.answer()
	s.hello()
	s.run()
	if f := s.frames(); len(f) < 2 || wire.InternalType(f[1].DPort) != wire.TypeNoSock {
		t.Errorf("on the next connection %v", f)
	}
}
