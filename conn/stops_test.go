package conn

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

func TestRefused(t *testing.T) {
	s := newScript(t).up()
	a, b := s.msg("a"), s.msg("b")
	other := &Msg{SPort: 3, DPort: 5, Data: []byte("other")}
	s.c.Send(other)
	s.run()
	s.frames()
	s.cong(4)
	s.send(s.notice(wire.TypeRefused, 100, 4))
	c := s.msg("c")
	o2 := &Msg{SPort: 3, DPort: 5, Data: []byte("other 2")}
	s.c.Send(o2)
	s.run()
	if f := s.frames(); len(f) != 1 || string(f[0].body) != "other 2" {
		t.Fatalf("while stopped: %+v", f)
	}
	if i := s.c.Info(); i.Stopped != 2 { // a and c
		t.Errorf("%d held back", i.Stopped)
	}
	s.cong() // free, but b is still in flight
	if f := s.frames(); len(f) != 0 {
		t.Fatalf("b could be overtaken: %+v", f)
	}
	s.send(s.notice(wire.TypeRefused, 101, 4))
	f := s.frames()
	var text []string
	for i, g := range f {
		text = append(text, string(g.body))
		if resume := g.Flags&wire.FlagResume != 0; resume != (i == 0) || g.Seq != 104+uint64(i) || g.Flags&wire.FlagRetransmitted != 0 {
			t.Errorf("frame %d: %+v", i, g)
		}
	}
	if strings.Join(text, "") != "abc" {
		t.Errorf("sent %q", text)
	}
	s.open(a, b, c)
	s.send(frame(wire.Header{Ack: 106}, nil))
	for _, m := range []*Msg{a, b, c, other, o2} {
		s.want(m, Acked)
	}
	s.msg("d")
	s.run()
	if f := s.frames(); len(f) != 1 || f[0].Flags&wire.FlagResume != 0 || len(s.c.stops.list) != 0 {
		t.Errorf("after resuming: %+v, %d stops", f, len(s.c.stops.list))
	}
}

// A refused operation's message is a plain message from then on.
func TestRefusedOperation(t *testing.T) {
	s := newScript(t).up()
	m := s.op(abi.OpWrite, 16)
	s.c.Send(m)
	s.run()
	s.frames()
	s.hold = true
	s.send(s.notice(wire.TypeRefused, 100, 4))
	w := s.posted()
	if len(w) != 1 || w[0].Op != verbs.OpSend {
		t.Fatalf("the operation was posted again: %d requests", len(w))
	}
	s.hold = false
	s.run()
	s.again(func(h *wire.Hello) { h.Ack = 100 })
	s.open(m)
	if f := s.frames(); len(f) != 1 || f[0].Seq != 101 || f[0].Flags&(wire.FlagRetransmitted|wire.FlagResume) != wire.FlagRetransmitted|wire.FlagResume {
		t.Errorf("frames %+v", f)
	}
	s.send(frame(wire.Header{Ack: 101}, nil))
	s.want(m, Acked)
}

// Having refused, a receiver refuses until RESUME.
func TestRefusing(t *testing.T) {
	s := newScript(t).up()
	full := true
	s.verdict = func(h *wire.Header) Verdict {
		if full && h.DPort == 9 {
			return Refused
		}
		return Accepted
	}
	s.send(s.data("a"))
	full = false
	s.send(s.data("b"), s.data("other", port(8)), s.data("", port(9), flags(wire.FlagSilent)))
	f := s.frames()
	if len(f) != 2 || u64(f[0].body) != s.seq-3 || u64(f[1].body) != s.seq-2 || f[1].DPort != uint16(wire.TypeRefused) {
		t.Fatalf("notices %+v", f)
	}
	s.again(func(h *wire.Hello) { h.Ack = 101 }) // it remembers over a reconnect
	s.send(s.data("c"))
	s.send(s.data("d", flags(wire.FlagResume)), s.data("e"))
	if got := strings.Join(s.delivered, ","); got != "other,d,e" {
		t.Errorf("delivered %q", got)
	}
}
