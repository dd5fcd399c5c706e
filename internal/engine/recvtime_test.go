package engine

import (
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/shm"
)

// jumps is a clock of an engine that jumps ahead within each turn. Bits from jumpBits on of what it
// says are how often it has jumped. Each reading is later than the one before.
type jumps struct {
	e     *Engine
	now   func() int64
	n     int64
	all   int64 // readings
	reads int   // since the last jump
}

const jumpBits = 40

func newJumps(e *Engine, now func() int64) *jumps {
	j := &jumps{e: e, now: now}
	e.KeepTime(func() int64 {
		j.reads++
		j.all++
		return j.now() + j.n<<jumpBits + j.all
	})
	return j
}

// before has the clock jump at the start of the next turn, behind a reading for something else that
// arrived. Then it calls f.
func (j *jumps) before(f func()) {
	j.e.Do(func() {
		j.e.arrived()
		j.n++
		j.reads = 0
		f()
	})
}

// check fails the test unless ev was stamped behind jump n.
func (j *jumps) check(t *testing.T, what string, ev *shm.Event, n int64) {
	t.Helper()
	if got := ev.RecvTime >> jumpBits; got != n {
		t.Errorf("%s: stamped behind jump %d of the clock, not %d", what, got, n)
	}
}

// TestRecvTime: the time of a message lies behind its arrival, although the turn in which it came
// began before that. The clock is read once for all that came together, and not in a turn in which
// nothing came.
func TestRecvTime(t *testing.T) {
	w, a, b := opPair(t, 2)
	a.submit(shm.Sub{Flags: shm.SubAckNow})
	w.run()
	b.datagrams()
	j := newJumps(b.e, w.net.Now)
	for _, c := range []struct{ size, n int }{{100, 1}, {100, 10}, {60_000, 1}} {
		for range c.n {
			a.submit(shm.Sub{Len: uint32(c.size)})
		}
		came := 0
		for i := 0; came < c.n; i++ {
			j.before(func() {})
			w.net.Step()
			w.turnAll()
			b.look()
			if i == 100_000 {
				t.Fatalf("%d of %d messages of %d bytes came", came, c.n, c.size)
			}
			if j.reads > 1 || len(b.msgs) == 0 && c.size == 100 && j.reads > 0 {
				t.Errorf("%d readings for %d messages of %d bytes", j.reads, len(b.msgs), c.size)
			}
			for k := range b.msgs {
				j.check(t, "from another host", &b.msgs[k], j.n)
			}
			came += len(b.datagrams())
		}
	}
	w.clean2(a, b)
}

// TestRecvTimeSameHost: what is sent while the turn runs has a time behind that, also in a run, behind
// an operation, and if it waits in the daemon's memory at first. Times rise in the order of messages.
func TestRecvTimeSameHost(t *testing.T) {
	w, a, b := opPair(t, 1)
	r := b.expose(0, 4096, abi.RightWrite, a)
	w.run()
	j := newJumps(a.e, w.net.Now)
	for _, c := range []struct {
		what   string
		submit func()
		n      int
		most   int // readings
	}{
		{"message", func() { a.submit(shm.Sub{Len: 100}) }, 10, 1},
		{"run", func() { a.submitRun(10, 20) }, 10, 1},
		{"message with an operation", func() { a.submit(shm.Sub{Len: 100}, a.op(abi.OpWrite, r.Cookie, 0)) }, 5, 1},
		{"message beyond the room of the process", func() { a.submit(shm.Sub{Len: 100}) }, 40, 40},
	} {
		j.before(func() {
			for range c.n {
				c.submit()
			}
		})
		w.turnAll()
		if j.reads > c.most {
			t.Errorf("%d readings for a %s, %d times", j.reads, c.what, c.n)
		}
		last := int64(0)
		for left, i := c.n, 0; left > 0; i++ {
			b.look()
			for k := range b.msgs {
				j.check(t, c.what, &b.msgs[k], j.n)
				if b.msgs[k].RecvTime < last {
					t.Errorf("%s: stamped before the one ahead of it", c.what)
				}
				last = b.msgs[k].RecvTime
			}
			if left -= len(b.msgs); i == 100 {
				t.Fatalf("%s: %d did not come", c.what, left)
			}
			b.datagrams()
			w.turnAll()
		}
	}
	w.clean2(a, b)
}

// TestRecvTimeTCP: what comes by RDS/TCP has a time behind the read that brought it. So messages on
// several lanes have several times, also if they come in one turn.
func TestRecvTimeTCP(t *testing.T) {
	w := newTCPWorld(t)
	a, b := w.sides[0], w.sides[1]
	all := []*opSide{a}
	for port := range uint16(7) {
		s := w.opSide(0, 20+port)
		s.open(s.sock, 0, 0, hostAddr(1), 10)
		all = append(all, s)
	}
	now := func() int64 { return int64(time.Since(w.begin)) + 1000 }
	j := newJumps(b.e, now)
	came := func(n int) func() bool {
		return func() bool {
			if b.look(); len(b.msgs) >= n {
				return true
			}
			j.before(func() {})
			return false
		}
	}
	for n, size := range []uint32{1, 100, 100_000} {
		a.submit(shm.Sub{Len: size})
		w.until("the next", came(n+1))
		j.check(t, "by RDS/TCP", &b.msgs[n], j.n)
	}
	for range 2 { // on lanes that are up the second time
		had := len(b.msgs)
		for _, s := range all {
			s.submit(shm.Sub{Len: 100})
		}
		for range 10 {
			w.es[0].Turn(now(), Wall(now()))
		}
		w.until("all of a round", came(had+len(all)))
		if first, last := b.msgs[had].RecvTime, b.msgs[len(b.msgs)-1].RecvTime; first == last {
			t.Errorf("all came at %d", first)
		}
	}
}

// TestTimeGoesOn: a pause puts the engine's time behind that of Turn's caller. Stamps are right all
// the same.
func TestTimeGoesOn(t *testing.T) {
	w, a, b := opPair(t, 1)
	e := a.e
	e.KeepTime(w.net.Now)
	e.Halt()
	w.turnsTo(e, e.Halted)
	w.net.At(w.net.Now()+int64(time.Hour), func() {})
	w.net.Step()
	e.Resume()
	tr := begin(t, e, ctl.TraceSpec{}, root)
	a.submit(shm.Sub{Len: 100})
	w.turnsTo(e, func() bool { b.look(); return len(b.msgs) > 0 })
	now := w.net.Now()
	if got := b.msgs[0].RecvTime; got != now {
		t.Errorf("it came at %d, by the stamp at %d", now, got)
	}
	for _, ev := range tr.Read(100) {
		if got := ev.Time.UnixNano(); got != now {
			t.Errorf("%s at %d, traced at %d", ev.Step, now, got)
		}
	}
}
