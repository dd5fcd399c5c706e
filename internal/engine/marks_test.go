package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/internal/shm"
)

// flood is a client with one socket that asks for more statuses than its event
// ring holds, and a second one.
type flood struct {
	*opSide
	ids  []uint32 // free message ids
	sent int
}

func newFlood(w *world) *flood {
	p := smallParams()
	r := w.attach(0, p)
	f := &flood{opSide: opSideOf(r, 10)}
	f.open(f.sock, 0, 0, hostAddr(0), 9)
	for i := range p.MaxMsgs - 16 {
		f.ids = append(f.ids, i)
	}
	return f
}

// fill submits operations that are refused at once, each with a status, while
// there are ids.
func (f *flood) fill() {
	for range 64 {
		if len(f.ids) == 0 {
			return
		}
		f.nextID = f.ids[0]
		f.ids = f.ids[1:]
		f.submit(shm.Sub{}, f.op(abi.OpWrite, 5, 0))
		f.sent++
	}
}

// take takes up to n events and what came back.
func (f *flood) take(n int) {
	ev, ret := f.seg.EventConsumer(), f.seg.SendRetConsumer()
	var e shm.Entry
	for ; n > 0 && ev.Next(&e); n-- {
		if shm.EvKind(e.Kind()) == shm.EvStatus {
			f.told = append(f.told, *e.Status())
		} else {
			f.notes = append(f.notes, *e.Notice())
		}
	}
	f.took()
	for id, ok := ret.Take(); ok; id, ok = ret.Take() {
		f.ids = append(f.ids, id)
	}
	ret.Release()
}

// TestMarkBesideFlood: while one socket always has more statuses than the event
// ring holds, its own mark goes on rising, never ahead of a status that was
// written, and the mark of another socket of the process is published at once,
// with its barrier event in its turn.
func TestMarkBesideFlood(t *testing.T) {
	w := newWorld(t, 1, Config{})
	f := newFlood(w)
	quiet := f.bind(11)
	f.open(quiet, 1, 1, hostAddr(0), 9)
	turn := func() { w.es[0].Turn(w.net.Now(), Wall(w.net.Now())) }
	turn()
	own, other := f.cl.table.Cell(0), f.cl.table.Cell(1)
	for turns, last := 0, uint64(0); turns < 200; turns++ {
		f.fill()
		if turn(); f.cl.pendOps.N == 0 {
			t.Fatalf("turn %d: no status waits: the test floods nothing", turns)
		}
		// All statuses are of operations in order.
		if hwm := own.LoadHWM(); hwm < last || hwm > uint64(len(f.told)+f.seg.EventConsumer().Avail()) {
			t.Fatalf("turn %d: mark %d after %d, with %d statuses written", turns, hwm, last, len(f.told)+f.seg.EventConsumer().Avail())
		} else {
			last = hwm
		}
		f.take(8)
		if behind := len(f.told) - int(last); behind > 2*int(f.cl.params.MaxMsgs) {
			t.Fatalf("turn %d: %d statuses taken, mark %d", turns, len(f.told), last)
		}
	}

	// The other socket: one operation without a status.
	f.seg.WantCell(1).StoreArmed(1)
	op := f.op(abi.OpWrite, 5, 0)
	op.Flags, op.OpID = 0, 1
	f.put(func(e *shm.Entry) {
		*e.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: quiet, Slot: 1, MsgID: f.cl.params.MaxMsgs - 1}
	})
	f.put(func(e *shm.Entry) { *e.SubOp() = op })
	if turn(); other.LoadHWM() != 1 {
		t.Errorf("the mark of a socket without statuses is %d in the turn of its operation, want 1", other.LoadHWM())
	}
	for turns := 0; len(f.notes) == 0; turns++ {
		if turns == 20 {
			t.Fatal("the barrier event waits behind the statuses of another socket")
		}
		f.fill()
		turn()
		f.take(8)
	}
	if n := f.notes[0]; n.Kind != shm.EvBarrier || n.Sock != quiet || n.Count != 1 {
		t.Errorf("event %+v, want the barrier of the other socket", n)
	}

	// Without more of it all is told, and the mark is the last id.
	for range 100 {
		turn()
		f.take(1 << 10)
	}
	if own.LoadHWM() != uint64(f.sent) || len(f.told) != f.sent {
		t.Errorf("%d operations: mark %d, %d statuses", f.sent, own.LoadHWM(), len(f.told))
	}
	w.clean(f.raw)
}

// TestFloodIsNotPaced: a turn writes as many statuses as there is room for, so
// what a client reads decides how fast they come, not a clock: virtual time
// stands still here.
func TestFloodIsNotPaced(t *testing.T) {
	w := newWorld(t, 1, Config{})
	f := newFlood(w)
	for range 10 {
		f.fill()
		w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
	}
	before := len(f.told)
	for range 10 {
		f.take(1 << 10)
		w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
	}
	if got := len(f.told) - before; got < 9*int(f.cl.params.EventEntries) {
		t.Errorf("%d statuses in 10 turns, with room for %d in each", got, f.cl.params.EventEntries)
	}
	for range 100 {
		w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
		f.take(1 << 10)
	}
	w.clean(f.raw)
}

// TestMarkRisesLast: the status of a later operation waits for room in the ring while an earlier
// operation is in progress, and while the mark is published. When the earlier one has ended and
// the status is told, the mark follows.
func TestMarkRisesLast(t *testing.T) {
	w := newWorld(t, 1, Config{})
	f := newFlood(w)
	e := w.es[0]
	e.Turn(w.net.Now(), Wall(w.net.Now()))
	ce := f.cl.cells[0]
	var ops [3]barrier.Op
	for i := range ops {
		if err := ce.mark.Issue(&ops[i], uint64(i)+1); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(o *barrier.Op, statusWaits bool) {
		if statusWaits {
			ce.queued++
		}
		if rose, err := ce.mark.Complete(o); err != nil {
			t.Fatal(err)
		} else if rose {
			e.clients.raise(ce)
		}
		e.clients.publishMarks(f.cl)
	}
	shown := func(when string, want uint64) {
		t.Helper()
		if e.clients.publishMarks(f.cl); f.cl.table.Cell(0).LoadHWM() != want {
			t.Errorf("%s: the mark is %d, not %d", when, f.cl.table.Cell(0).LoadHWM(), want)
		}
	}
	ends(&ops[0], true)
	ends(&ops[2], true)
	shown("two statuses wait", 0)
	e.clients.statusTold(ce)
	shown("the first status is told", 1)
	ends(&ops[1], false)
	shown("the last status waits", 1)
	e.clients.statusTold(ce)
	shown("all is told", 3)
}
