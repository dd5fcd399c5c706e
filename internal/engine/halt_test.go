package engine

import (
	"github.com/rdsd/rdsd/internal/chores"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/shm"
)

// haltTurns is within how many turns an engine without connections stands still: the one that
// ends the last operation, one that breaks connections off, and one that finds nothing left.
const haltTurns = 3

// turnsTo counts the turns until done. Time stands still.
func (w *world) turnsTo(e *Engine, done func() bool) (n int) {
	w.t.Helper()
	for ; !done(); n++ {
		if e.Turn(w.net.Now(), Wall(w.net.Now())); n > 1000 {
			w.t.Fatal("it takes more than 1000 turns")
		}
	}
	return n
}

// TestHaltChores: a daemon that is to stand still first does what was left to be done, and serves
// until then. After that it stands still as fast as one that had nothing to do.
func TestHaltChores(t *testing.T) {
	const msgs = 16 * chores.Budget
	l := &atLimit{world: newWorld(t, 1, Config{})}
	r, a, b := l.attach(0, largeParams()), l.opSide(0, 10), l.opSide(0, 20)
	s := r.bind(30)
	r.open(s, 0, 0, nobody(1), 20)
	l.sendAll(r, s, msgs, func(int) uint32 { return 0 }, 10)
	a.open(a.sock, 0, 0, hostAddr(0), b.port)
	e := l.es[0]
	r.at.Close()
	e.Halt()
	served := 0
	turns := l.turnsTo(e, func() bool {
		if !e.Halts() {
			a.submit(shm.Sub{Len: 4})
		}
		served += len(b.datagrams())
		return e.Halts()
	})
	if turns < msgs/chores.Budget-1 || e.chores.Open() > 0 || e.clients.leaving.N > 0 {
		t.Errorf("the engine pauses after %d turns, with %d chores and %d processes that end", turns, e.chores.Open(), e.clients.leaving.N)
	}
	if served < turns {
		t.Errorf("%d messages were delivered in %d turns", served, turns)
	}
	if n := l.turnsTo(e, e.Halted); n > haltTurns {
		t.Errorf("the pause takes %d turns", n)
	}
	e.Resume()
	l.clean(a.raw, b.raw)
}

// TestHaltEndlessChore: chores hold up a pause for haltChoresNs at most. What is left of them is
// done in the pause. A pause that is given up before leaves the engine as it was.
func TestHaltEndlessChore(t *testing.T) {
	for _, givenUp := range []bool{true, false} {
		w := newWorld(t, 2, Config{})
		a, b := w.opSide(0, 10), w.opSide(1, 20)
		a.open(a.sock, 0, 0, hostAddr(1), b.port)
		send := func(want int) {
			t.Helper()
			a.submit(shm.Sub{Len: 4})
			w.pass(10*ms, w.es...)
			if n := len(b.datagrams()); n != want {
				t.Errorf("%d messages were delivered, not %d", n, want)
			}
		}
		send(1)
		e := w.es[0]
		end := e.endless()
		e.Halt()
		w.pass(haltChoresNs-100*ms, w.es...)
		if e.Halts() {
			t.Fatal("the engine pauses at once")
		}
		send(1)
		if givenUp {
			e.Resume()
			w.pass(haltChoresNs, w.es...)
			if e.Halts() || e.peers.all[0].c.State() != conn.Up {
				t.Errorf("the engine pauses: %v; its connection is %v", e.Halts(), e.peers.all[0].c.State())
			}
			end()
			w.clean2(a, b)
			continue
		}
		w.pass(200*ms, w.es...)
		if !e.Halts() || e.Halted() {
			t.Errorf("after %d ms the engine pauses: %v; it stands still: %v", haltChoresNs/ms+100, e.Halts(), e.Halted())
		}
		send(0)
		end()
		if w.turnsTo(e, e.Halted); e.chores.Open() > 0 {
			t.Error("the engine stands still, with a chore")
		}
		e.Resume()
		w.wait(100 * ms)
		if n := len(b.datagrams()); n != 1 {
			t.Errorf("%d messages were delivered after the pause, not 1", n)
		}
		w.clean2(a, b)
	}
}

// ringsLeft are states in which a process leaves its rings.
var ringsLeft = []struct {
	name  string
	leave func(t *testing.T, w *world) *raw
}{
	{"statuses are unread", func(t *testing.T, w *world) *raw {
		f := newFlood(w)
		f.submit(shm.Sub{}, f.op(abi.OpWrite, 5, 0))
		w.run()
		if n := f.seg.EventConsumer().Avail(); n != 1 {
			t.Fatalf("%d events", n)
		}
		return f.raw
	}},
	{"statuses wait for room", func(t *testing.T, w *world) *raw {
		f := newFlood(w)
		for len(f.ids) > 0 {
			f.fill()
			w.run()
		}
		f.isFull(t)
		if f.cl.pendOps.N == 0 {
			t.Fatal("no status waits")
		}
		return f.raw
	}},
	{"messages wait for room", func(t *testing.T, w *world) *raw {
		p := smallParams()
		p.MaxRx = 256
		from, r := w.opSide(0, 11), w.attach(0, p)
		r.bind(12)
		from.open(from.sock, 0, 0, hostAddr(0), 12)
		for range 2 * r.cl.ev.Free() {
			from.submit(shm.Sub{Len: 4})
		}
		w.run()
		r.isFull(t)
		if r.cl.pendSocks.N == 0 {
			t.Fatal("no message waits")
		}
		from.at.Close()
		w.run()
		return r
	}},
	{"ids of messages were not taken back", func(t *testing.T, w *world) *raw {
		r := w.attach(0, smallParams())
		s := r.bind(11)
		r.open(s, 0, 0, hostAddr(0), 9)
		for id := range r.cl.params.MaxMsgs {
			r.sendMsg(s, 0, id, 4)
			if id%64 == 63 {
				w.run()
			}
		}
		if n := r.seg.SendRetConsumer().Avail(); n != int(r.cl.params.MaxMsgs) {
			t.Fatalf("%d ids", n)
		}
		return r
	}},
	{"the submission ring is full", func(t *testing.T, w *world) *raw {
		r := w.attach(0, smallParams())
		s := r.bind(11)
		r.open(s, 0, 0, nobody(1), 9)
		w.run()
		for id := range r.cl.params.SubEntries {
			r.sendMsg(s, 0, id, 4)
		}
		return r
	}},
}

// isFull fails unless the event ring of r is full.
func (r *raw) isFull(t *testing.T) {
	t.Helper()
	if n := r.cl.ev.Free(); n != 0 {
		t.Fatalf("the event ring has room for %d", n)
	}
}

// TestHaltFullRings: what a process leaves in its rings adds no turn to a pause.
func TestHaltFullRings(t *testing.T) {
	for _, c := range ringsLeft {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1, Config{})
			r := c.leave(t, w)
			e := w.es[0]
			e.Halt()
			if n := w.turnsTo(e, e.Halted); n > haltTurns {
				t.Errorf("the pause takes %d turns", n)
			}
			e.Resume()
			r.alive(true)
			w.clean(r)
		})
	}
}
