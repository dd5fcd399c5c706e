package rdmaop

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/verbs"
)

// cell is a barrier with its operations, the way their owner drives them:
// statuses are noted before the mark rises.
type cell struct {
	t        *testing.T
	mark     barrier.Mark
	ops      map[uint64]*Op
	places   map[uint64]*barrier.Op
	statuses map[uint64]abi.Status
}

func newCell(t *testing.T) *cell {
	return &cell{t: t, ops: map[uint64]*Op{}, places: map[uint64]*barrier.Op{}, statuses: map[uint64]abi.Status{}}
}

// queue submits n operations.
func (c *cell) queue(n int) {
	for range n {
		o := &Op{Kind: abi.OpWrite, ID: c.mark.Last() + 1}
		c.places[o.ID] = &barrier.Op{}
		if err := c.mark.Issue(c.places[o.ID], o.ID); err != nil {
			c.t.Fatal(err)
		}
		c.ops[o.ID] = o
		c.step(Event{Type: EvQueue}, o.ID)
	}
}

// step gives ev to the operations in turn.
func (c *cell) step(ev Event, ids ...uint64) {
	c.t.Helper()
	for _, id := range ids {
		o := c.ops[id]
		eff, err := o.Step(ev)
		if err != nil {
			c.t.Fatalf("operation %d: %v", id, err)
		}
		if eff&Report != 0 {
			if _, twice := c.statuses[id]; twice {
				c.t.Fatalf("operation %d: a second status", id)
			}
			c.statuses[id] = o.Status()
		}
		if eff&RaiseLocal != 0 {
			if _, err := c.mark.Complete(c.places[id]); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func (c *cell) on(e EventType, ids ...uint64) { c.t.Helper(); c.step(Event{Type: e}, ids...) }

// wantHWM checks the mark, and the statuses of 1, 2, … ("-": none yet).
func (c *cell) wantHWM(hwm uint64, statuses ...string) {
	c.t.Helper()
	if c.mark.HWM() != hwm {
		c.t.Errorf("HWM %d, want %d", c.mark.HWM(), hwm)
	}
	for i, want := range statuses {
		got := "-"
		if s, ok := c.statuses[uint64(i+1)]; ok {
			got = s.String()
		}
		if got != want {
			c.t.Errorf("operation %d: status %s, want %s", i+1, got, want)
		}
	}
}

// The cases every implementation of the barrier has to get right.
func TestHWM(t *testing.T) {
	cases := []struct {
		name string
		run  func(c *cell)
	}{
		{"success: the send completion raises, the ack settles", func(c *cell) {
			c.queue(2)
			c.on(EvPost, 1, 2)
			c.wantHWM(0, "-", "-")
			c.on(EvLocal, 1)
			c.wantHWM(1, "-", "-")
			c.on(EvAck, 1)
			c.wantHWM(1, "SUCCESS", "-")
		}},
		{"ack first: the status is there before the mark rises", func(c *cell) {
			c.queue(1)
			c.on(EvPost, 1)
			c.on(EvAck, 1)
			c.wantHWM(0, "SUCCESS")
			c.on(EvLocal, 1)
			c.wantHWM(1, "SUCCESS")
		}},
		{"bad key: the mark rises, operations flushed behind it too", func(c *cell) {
			c.queue(3)
			c.on(EvPost, 1, 2, 3)
			c.step(Event{Type: EvWCError, WC: verbs.WCRemAccessErr}, 1)
			c.wantHWM(0, "REMOTE_ERROR", "-", "-")
			c.on(EvLocal, 1, 2, 3) // flushed
			c.wantHWM(3, "REMOTE_ERROR", "-", "-")
			c.on(EvLess, 1, 2, 3)
			c.wantHWM(3, "REMOTE_ERROR", "DROPPED", "DROPPED")
		}},
		{"cable pulled: all posted rise after the drain, without a reconnect", func(c *cell) {
			c.queue(5)
			c.on(EvPost, 1, 2, 3, 4, 5)
			c.wantHWM(0)
			c.on(EvLocal, 1, 2, 3, 4, 5)
			c.wantHWM(5, "-", "-", "-", "-", "-")
			c.on(EvAck, 1, 2) // the reconnect: these had arrived
			c.on(EvLess, 3, 4, 5)
			c.wantHWM(5, "SUCCESS", "SUCCESS", "DROPPED", "DROPPED", "DROPPED")
		}},
		{"drop with some only queued: they stay pending, then run", func(c *cell) {
			c.queue(4)
			c.on(EvPost, 1, 2)
			c.on(EvLocal, 1, 2)
			c.on(EvLess, 1, 2)
			c.wantHWM(2, "DROPPED", "DROPPED", "-", "-")
			c.on(EvPost, 3, 4)
			c.on(EvLocal, 3, 4)
			c.on(EvAck, 3, 4)
			c.wantHWM(4, "DROPPED", "DROPPED", "SUCCESS", "SUCCESS")
		}},
		{"peer gone for good: UNKNOWN if posted, DROPPED if not", func(c *cell) {
			c.queue(3)
			c.on(EvPost, 1, 2)
			c.on(EvLocal, 1, 2)
			c.wantHWM(2, "-", "-", "-")
			c.on(EvTimeout, 1)
			c.on(EvRestarted, 2, 3)
			c.wantHWM(3, "UNKNOWN", "UNKNOWN", "DROPPED")
		}},
		{"cancel while posted: CANCELED now, the mark when the work request completes", func(c *cell) {
			c.queue(1)
			c.on(EvPost, 1)
			c.on(EvCancel, 1)
			c.wantHWM(0, "CANCELED")
			c.on(EvLocal, 1)
			c.on(EvAck, 1) // it arrived all the same
			c.wantHWM(1, "CANCELED")
		}},
		{"cancel while queued: both at once", func(c *cell) {
			c.queue(2)
			c.on(EvCancel, 2)
			c.wantHWM(0, "-", "CANCELED")
			c.on(EvCancel, 1)
			c.wantHWM(2, "CANCELED", "CANCELED")
		}},
		{"refused in the middle: the mark waits for those before it", func(c *cell) {
			c.queue(3)
			c.on(EvPost, 1)
			c.step(Event{Type: EvRefuse, Errno: unix.EACCES}, 2)
			c.on(EvPost, 3)
			c.on(EvLocal, 3)
			c.wantHWM(0, "-", "REMOTE_ERROR", "-")
			c.on(EvLocal, 1)
			c.wantHWM(3, "-", "REMOTE_ERROR", "-")
		}},
		{"no socket: DROPPED", func(c *cell) {
			c.queue(1)
			c.on(EvPost, 1)
			c.on(EvLocal, 1)
			c.on(EvNoSocket, 1)
			c.wantHWM(1, "DROPPED")
		}},
		{"two of one message: one completion raises both, one ack settles both", func(c *cell) {
			c.queue(2)
			c.on(EvPost, 1, 2)
			c.on(EvLocal, 1, 2)
			c.wantHWM(2, "-", "-")
			c.on(EvAck, 1, 2)
			c.wantHWM(2, "SUCCESS", "SUCCESS")
		}},
		{"two of one message, one refused: the other is dropped, neither was posted", func(c *cell) {
			c.queue(3)
			c.step(Event{Type: EvRefuse, Errno: unix.EACCES}, 2)
			c.on(EvSibling, 1)
			c.on(EvPost, 3)
			c.wantHWM(2, "DROPPED", "REMOTE_ERROR", "-")
		}},
		{"two of one message, one failed: the mark waits for both", func(c *cell) {
			c.queue(2)
			c.on(EvPost, 1, 2)
			c.on(EvSibling, 1)
			c.step(Event{Type: EvWCError, WC: verbs.WCRemAccessErr}, 2)
			c.wantHWM(0, "DROPPED", "REMOTE_ERROR")
			c.on(EvLocal, 1)
			c.wantHWM(1)
			c.on(EvLocal, 2)
			c.on(EvLess, 1, 2) // what the handshake says of them is no news
			c.wantHWM(2, "DROPPED", "REMOTE_ERROR")
		}},
		{"given up: DROPPED if queued; UNKNOWN if posted, the mark when it is local", func(c *cell) {
			c.queue(2)
			c.on(EvPost, 1)
			c.on(EvTimeout, 1, 2)
			c.wantHWM(0, "UNKNOWN", "DROPPED")
			c.on(EvLocal, 1)
			c.on(EvAck, 1) // it arrived all the same
			c.wantHWM(2, "UNKNOWN", "DROPPED")
		}},
		{"many, then wait for the last", func(c *cell) {
			c.queue(1000)
			for id := uint64(1); id <= 1000; id++ {
				c.on(EvPost, id)
			}
			for id := uint64(1000); id > 1; id-- {
				c.on(EvLocal, id)
			}
			c.wantHWM(0)
			c.on(EvLocal, 1)
			c.wantHWM(1000)
			if !c.mark.Reached(1000) || c.mark.Reached(1001) {
				c.t.Error("Reached")
			}
		}},
		{"ids across 2^63", func(c *cell) {
			c.mark.Start(1<<63 - 2)
			c.queue(4)
			ids := []uint64{1<<63 - 1, 1 << 63, 1<<63 + 1, 1<<63 + 2}
			c.on(EvPost, ids...)
			c.on(EvLocal, ids[1:]...)
			c.wantHWM(1<<63 - 2)
			c.on(EvLocal, ids[0])
			c.wantHWM(1<<63 + 2)
		}},
		{"two destinations do not disturb each other", func(c *cell) {
			other := newCell(c.t)
			c.queue(2)
			other.queue(2)
			c.on(EvPost, 1, 2)
			other.on(EvPost, 1, 2)
			c.on(EvLocal, 1, 2)
			c.wantHWM(2)
			other.wantHWM(0)
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) { tc.run(newCell(t)) })
	}
}

// TestHWMHistories drives many operations of one cell at random and checks
// after each step that the mark never falls and never passes an operation
// whose buffers can still be touched; at the end everything has risen.
func TestHWMHistories(t *testing.T) {
	replay(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		c := newCell(t)
		touched := map[uint64]bool{} // issued, and not yet locally complete
		mark := func() {
			last := c.mark.HWM()
			for id := range touched {
				if c.mark.Reached(id) {
					t.Errorf("HWM %d passed operation %d, which can still be touched", last, id)
				}
			}
		}
		var hwm uint64
		live := func() (ids []uint64) {
			for id, o := range c.ops {
				if o.State() != StateSettled {
					ids = append(ids, id)
				}
			}
			slices.Sort(ids)
			return ids
		}
		settle := []EventType{EvAck, EvLess, EvNoSocket, EvRestarted, EvTimeout, EvCancel, EvSibling}
		advance := func(id uint64) {
			o := c.ops[id]
			switch s := o.State(); {
			case s == StateQueued && r.IntN(4) > 0:
				c.on(EvPost, id)
			case s == StateQueued:
				delete(touched, id)
				c.on([]EventType{EvRefuse, EvCancel, EvRestarted, EvTimeout, EvSibling}[r.IntN(5)], id)
			case s == StateTold || s == StatePosted && r.IntN(2) == 0:
				delete(touched, id)
				c.on(EvLocal, id)
			default:
				c.on(settle[r.IntN(len(settle))], id)
			}
		}
		for range 3000 {
			ids := live()
			if len(ids) == 0 || len(ids) < 40 && r.IntN(3) == 0 {
				c.queue(1)
				touched[c.mark.Last()] = true
			} else {
				advance(ids[r.IntN(len(ids))])
			}
			mark()
			if c.mark.HWM() < hwm {
				t.Errorf("HWM fell from %d to %d", hwm, c.mark.HWM())
			}
			hwm = c.mark.HWM()
			if t.Failed() {
				return
			}
		}
		for ids := live(); len(ids) > 0; ids = live() {
			advance(ids[0])
		}
		if !c.mark.AllDone() || c.mark.HWM() != c.mark.Last() || len(c.statuses) != int(c.mark.Last()) {
			t.Errorf("at the end: HWM %d of %d, %d statuses", c.mark.HWM(), c.mark.Last(), len(c.statuses))
		}
	})
}
