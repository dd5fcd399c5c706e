package tcp

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
)

// TestTCPTooLate: a connection that is there when nobody wants it any more is read to its end. The peer's
// TCP has got acks of what it sent, so the peer holds that for delivered.
func TestTCPTooLate(t *testing.T) {
	for name, end := range map[string]func(p *tcpPuppet){
		"reset":  func(p *tcpPuppet) { p.c.Reset(p.now, errors.New("by hand")) },
		"halted": func(p *tcpPuppet) { p.c.Halt(p.now) },
	} {
		p := newTCPPuppet(t, true)
		p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("x")})
		p.run(2)
		end(p)
		s, lane := p.dialed()
		if s.ended || !s.finished {
			t.Fatalf("%s: %+v", name, s)
		}
		p.c.HandleData(p.now, lane, tcpFrame(1, 5, 6, 0, "it is there"))
		p.c.HandleClosed(p.now, lane, nil)
		if !slices.Equal(p.got, []string{"f:it is there"}) || !s.ended || p.c.State() != conn.Down {
			t.Errorf("%s: received %q, %+v, %v", name, p.got, s, p.c.State())
		}
	}
}
