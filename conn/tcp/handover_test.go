package tcp

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/internal/runs"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/handover"
)

// tcpPause is a planned pause of an end.
type tcpPause struct {
	on       bool
	until    int64             // when it goes on, 0: it does not stand still yet
	accepted map[*pipeEnd]bool // connections that had been accepted when it began
	took     int               // so often another TCP has taken over
	carried  int               // messages that it got
}

// mayTake reports whether the end is handed r. In a pause it accepts no further connections:
// they wait in its kernel.
func (e *tcpEnd) mayTake(r *pipeEnd) bool {
	return !e.pausing.on || r.side == 0 || e.pausing.accepted[r]
}

// pause begins a pause, now and then, or ends one: the TCP goes on, or another takes its place
// that has nothing of it but its encoded state.
func (e *tcpEnd) pause() {
	w, p := e.w, &e.pausing
	switch {
	case !p.on && w.halts > 0 && w.rng.IntN(w.halts) == 0:
		p.on, p.until, p.accepted = true, 0, map[*pipeEnd]bool{}
		for _, r := range e.news {
			p.accepted[r] = w.rng.IntN(2) == 0
		}
		e.c.Halt(w.now)
	case p.on && p.until == 0 && w.rng.IntN(200) == 0: // goes on before it stands still
		p.on = false
		e.c.Resume(w.now)
	case p.on && p.until == 0 && e.still():
		p.until = w.now + int64(w.rng.IntN(5_000_000))
	case p.on && p.until > 0 && w.now >= p.until:
		p.on = false
		e.succeed()
		e.c.Resume(w.now)
	}
}

// still reports whether nothing of the end is in progress.
func (e *tcpEnd) still() bool {
	if e.c.State() != conn.Down || slices.ContainsFunc(e.news, e.mayTake) {
		return false
	}
	if len(e.partial) > 0 {
		e.w.Fatalf("end %d is Down, and %d messages are half received", e.n, len(e.partial))
	}
	return !slices.ContainsFunc(e.w.dials, func(d tcpDial) bool { return d.from == e })
}

// succeed has another TCP take the place of the end's.
func (e *tcpEnd) succeed() {
	t := e.w
	number := func(m *msg.Msg) uint32 { return m.Owner.(uint32) }
	state, err := e.c.Encode(handover.Newest, number)
	if err != nil {
		t.Fatalf("end %d: encode: %v", e.n, err)
	}
	cfg := e.cfg
	cfg.StartSeq = 1
	c := New(cfg, e)
	seen := 0
	err = c.Adopt(state, func(n uint32) *msg.Msg {
		was := e.live[n]
		if was == nil {
			t.Fatalf("end %d: message %d was handed over", e.n, n)
		}
		m := &msg.Msg{Owner: was.Owner, SPort: was.SPort, DPort: was.DPort}
		m.Data, m.Run = was.Whole()
		e.live[n] = m
		seen++
		return m
	})
	if err != nil {
		t.Fatalf("end %d: adopt: %v", e.n, err)
	}
	if seen != len(e.live) {
		t.Fatalf("end %d: %d messages were handed over, there are %d", e.n, seen, len(e.live))
	}
	if again, err := c.Encode(handover.Newest, number); err != nil || !bytes.Equal(again, state) {
		t.Fatalf("end %d: %v; adopted and written again:\n%x\nit was\n%x", e.n, err, again, state)
	}
	e.pausing.took++
	e.pausing.carried += seen
	e.c = c
}

// TestTCPNotHandedOver: only a TCP that is halted and Down is handed over.
func TestTCPNotHandedOver(t *testing.T) {
	p := newTCPPuppet(t, true)
	if _, err := p.c.Encode(1, nil); err == nil {
		t.Error("not halted")
	}
	p.c.Halt(p.now)
	if _, err := p.c.Encode(1, nil); err != nil {
		t.Errorf("halted: %v", err)
	}
	if _, err := p.c.Encode(0, nil); err == nil {
		t.Error("version 0 was written")
	}
	if err := p.c.Adopt([]byte("x"), nil); err == nil {
		t.Error("no state was adopted")
	}
}

// TestTCPHaltCutsOff: a peer that does not end its side of a connection does not hold a pause up.
func TestTCPHaltCutsOff(t *testing.T) {
	p := newTCPPuppet(t, true)
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("one")})
	p.run(2)
	s, _ := p.dialed()
	p.c.Halt(p.now)
	if !s.finished || p.c.State() != conn.Error {
		t.Fatalf("%v, finished %v", p.c.State(), s.finished)
	}
	p.c.Tick(p.now + haltEndNs)
	if p.c.State() != conn.Down || !s.ended || p.c.NeedFlush() {
		t.Fatalf("%v, ended %v", p.c.State(), s.ended)
	}
	state, err := p.c.Encode(1, func(*msg.Msg) uint32 { return 7 })
	if err != nil {
		t.Fatal(err)
	}
	c := New(p.c.cfg, p)
	if err := c.Adopt(state, func(uint32) *msg.Msg { return &msg.Msg{SPort: 5, DPort: 6, Data: []byte("one")} }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Conn{p.c, c} {
		if c.Resume(p.now); !c.NeedFlush() && c.NextTimeout() == 0 {
			t.Error("it does not connect again")
		}
	}
}

// TestTCPConnectsAgain: a lane that was up before a pause is connected again though nothing is to
// be sent.
func TestTCPConnectsAgain(t *testing.T) {
	p := newTCPPuppet(t, true)
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("one")})
	p.run(2)
	p.dialed()
	p.c.HandleData(p.now, 0, tcpFrame(1, 5, 6, 0, "it is there"))
	p.c.Halt(p.now)
	p.c.HandleClosed(p.now, 0, nil)
	state, err := p.c.Encode(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := New(p.c.cfg, p)
	if err := c.Adopt(state, nil); err != nil {
		t.Fatal(err)
	}
	if c.Resume(p.now); !c.NeedFlush() {
		t.Error("it does not connect again")
	}
	c.Flush(p.now)
	if c.State() != conn.Connecting || c.lanes[0].in.last != 1 {
		t.Errorf("%v, received up to %d", c.State(), c.lanes[0].in.last)
	}
}

// FuzzTCPAdopt: whatever the state is, it is refused, or a TCP goes on from it and ends.
func FuzzTCPAdopt(f *testing.F) {
	w := newTCPWorld(nil, 1, [2]int{8, 8})
	w.halts = 1 << 30
	for i := range 3000 {
		if i%8 == 0 {
			w.ends[w.rng.IntN(2)].send(uint16(100 + w.rng.IntN(12)))
		}
		w.step()
	}
	for _, e := range w.ends {
		e.c.Halt(w.now)
		for n := 0; e.c.State() != conn.Down && n < 100_000; n++ {
			w.step()
		}
		state, err := e.c.Encode(handover.Newest, func(m *msg.Msg) uint32 { return m.Owner.(uint32) })
		if err != nil {
			f.Fatal(err)
		}
		f.Add(state)
	}
	f.Fuzz(func(t *testing.T, state []byte) {
		p := newTCPPuppet(t, true)
		ms := map[uint32]*msg.Msg{}
		err := p.c.Adopt(state, func(n uint32) *msg.Msg {
			if n > 400 {
				return nil
			}
			if ms[n] == nil {
				ms[n] = &msg.Msg{SPort: 3, DPort: uint16(n), Data: []byte("x")}
				if n%3 == 0 {
					ms[n].Data, ms[n].Run = runs.Of("one", "", "three"), 3
				}
			}
			return ms[n]
		})
		if err != nil {
			if !errors.Is(err, handover.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		p.c.Resume(p.now)
		p.run(3)
		if len(p.dials) > 0 {
			p.dialed()
		}
		p.run(3)
		p.c.Close(p.now)
		p.run(3)
		p.c.Tick(p.now + 1<<40)
		if p.c.State() != conn.Down {
			t.Fatalf("closed, and %v", p.c.State())
		}
	})
}
