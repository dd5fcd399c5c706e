package conn

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

func TestRefused(t *testing.T) {
	s := newScript(t).up()
	a, b := s.msg("a"), s.msg("b")
	other := &msg.Msg{SPort: 3, DPort: 5, Data: []byte("other")}
	s.c.Send(other)
	s.run()
	s.frames()
	s.cong(4)
	s.send(s.notice(wire.TypeRefused, 100, 4))
	c := s.msg("c")
	o2 := &msg.Msg{SPort: 3, DPort: 5, Data: []byte("other 2")}
	s.c.Send(o2)
	s.run()
	if f := s.frames(); len(f) != 1 || string(f[0].body) != "other 2" {
		t.Fatalf("while stopped: %+v", f)
	}
	if i := s.c.Info(); i.Stopped != 1 || !s.c.Stopped(4) || s.c.Stopped(5) { // a; c is the host's
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
	for _, m := range []*msg.Msg{a, b, c, other, o2} {
		s.want(m, msg.Acked)
	}
	s.msg("d")
	s.run()
	if f := s.frames(); len(f) != 1 || f[0].Flags&wire.FlagResume != 0 || len(s.c.stops.list) != 0 {
		t.Errorf("after resuming: %+v, %d stops", f, len(s.c.stops.list))
	}
}

// TestStopReturns: of what is for a port that stops, a connection keeps what was refused. The
// rest it gives back, the last one first: an operation then is not under way.
func TestStopReturns(t *testing.T) {
	s := newScript(t).up()
	first := s.msg("first")
	s.run()
	s.frames()
	s.c.HoldOps() // so that operations wait
	var queued []*msg.Msg
	for range 3 {
		queued = append(queued, s.op(abi.OpWrite, 64<<10))
		s.c.Send(queued[len(queued)-1])
	}
	if n := s.c.OpsUnderWay(); n != 3*64<<10 {
		t.Fatalf("%d bytes under way", n)
	}
	sent := s.c.Stats().SendQueued
	s.cong(4)
	s.send(s.notice(wire.TypeRefused, first.Track.Seq, 4))
	if n := s.c.OpsUnderWay(); n != 0 || !slices.Equal(s.away, queued) || s.c.Stats().SendQueued != sent-3 {
		t.Errorf("%d bytes under way, %d messages given back, %d sent", n, len(s.away), s.c.Stats().SendQueued)
	}
	s.open(append(queued, first)...)
	s.c.Send(&msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("too early")}) // by a host that does not ask
	s.c.Resume(s.now)
	s.run()
	if f := s.frames(); len(f) != 0 || len(s.away) != 4 {
		t.Errorf("sent to the stopped port: %+v", f)
	}
}

// TestLetsGo: what several ports have refused goes out a little at a time, a message of each
// port in turn, and what the host sends to other ports meanwhile goes between. What is not let
// go when the connection breaks off is on the next one.
func TestLetsGo(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		s := newScript(t).up()
		const n, size = 12, 6000
		for i := range byte(n) {
			for port := uint16(4); port < 6; port++ {
				s.c.Send(&msg.Msg{SPort: 3, DPort: port, SrcInc: 5, Data: bytes.Repeat([]byte{i}, size)})
			}
		}
		s.run()
		s.frames()
		s.cong(4, 5)
		for i := range uint64(2 * n) {
			s.send(s.notice(wire.TypeRefused, 100+i, uint16(4+i%2)))
		}
		s.credits(0)
		s.cong()
		if got := s.c.Queued(); got < keepsWindow || got > keepsWindow+size+msg.FrameWork || !s.c.Stopped(4) || s.c.Released() != 0 {
			t.Fatalf("%d bytes wait, stopped %v, %d released", got, s.c.Stopped(4), s.c.Released())
		}
		s.c.Send(&msg.Msg{SPort: 3, DPort: 9, SrcInc: 5, Data: []byte{n}})
		if breaks {
			s.again(func(h *wire.Hello) { h.Ack = 100 + 2*n - 1 })
		}
		s.credits(100)
		s.c.dirty = true
		s.run()
		var next [10]byte
		turns, ahead := 0, uint16(0)
		for i, f := range s.frames() {
			if f.DPort == 9 {
				if turns = i; turns > keepsWindow/size+1 {
					t.Errorf("%d messages of others are ahead", i)
				}
				continue
			}
			if resume := f.Flags&wire.FlagResume != 0; ahead != 0 && f.DPort != ahead || f.body[0] != next[f.DPort] || resume != (f.body[0] == 0) {
				t.Errorf("frame %d: message %d to port %d, resume %v", i, f.body[0], f.DPort, resume)
			}
			next[f.DPort]++
			ahead = 9 - f.DPort
		}
		if next[4] != n || next[5] != n || turns == 0 && !breaks || s.c.Released() != 2 || len(s.c.stops.list) != 0 {
			t.Errorf("sent %d and %d, %d ports released, %d known", next[4], next[5], s.c.Released(), len(s.c.stops.list))
		}
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
	s.want(m, msg.Acked)
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
