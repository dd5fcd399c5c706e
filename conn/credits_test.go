package conn

import (
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

func TestCreditOverrun(t *testing.T) {
	s := newScript(t, func(c *Config) { c.RecvCredits = 4 }).up()
	s.credits(0) // it can return none
	for range 4 {
		s.send(s.data("x"))
	}
	if s.c.State() != Up {
		t.Fatal(s.lastTrace)
	}
	s.send(s.data("x"))
	s.wantError(ErrProtocol)
}

func TestCreditReturn(t *testing.T) {
	s := newScript(t, func(c *Config) { c.RecvCredits = 8; c.AckDelay = 1e9; c.AckBytes = 1 << 30 }).up()
	for i := range 3 {
		s.send(s.data("x"))
		if f := s.frames(); len(f) != 0 {
			t.Fatalf("after %d: %+v", i+1, f)
		}
	}
	s.send(s.data("x"))
	if f := s.frames(); len(f) != 1 || f[0].Credit != 4 {
		t.Errorf("half of the credits owed: %+v", f)
	}
}

func TestLastCredit(t *testing.T) {
	s := newScript(t).up(func(h *wire.Hello) { h.Credits = 4 })
	for range 3 {
		s.msg("x")
		s.run()
	}
	if f := s.frames(); len(f) != 3 {
		t.Fatalf("%d frames", len(f))
	}
	s.msg("needs the last")
	s.c.Send(&msg.Msg{Internal: wire.TypeRevoke, Data: make([]byte, 8)})
	s.run()
	if f := s.frames(); len(f) != 0 {
		t.Fatalf("the last credit was used: %+v", f)
	}
	s.send(s.data("gives one to return"))
	if f := s.frames(); len(f) != 2 || f[0].Credit != 1 {
		t.Errorf("with something to return: %+v", f)
	}
}

// credits sets what the Conn may send.
func (s *script) credits(n uint32) { s.c.credits.left = n }
