package engine

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestRoomMeanwhile: a client that takes an event while the engine looks for room, at any step of the
// look, gets what waits: the engine has written it, or will look again.
func TestRoomMeanwhile(t *testing.T) {
	w := newWorld(t, 1, Config{})
	e := w.es[0]
	a := w.attach(0, smallParams())
	s := a.bind(10)
	a.open(s, 0, 0, hostAddr(0), 11)
	e.Turn(1, 1)
	cl, sl := a.cl, a.cl.slots[0]
	var round, taken atomic.Int64
	go func() { // it reads, one event in each round
		c := a.seg.EventConsumer()
		for n, x := int64(1), (shm.Entry{}); ; n++ {
			for round.Load() < n {
				runtime.Gosched()
			}
			if round.Load() > n {
				return
			}
			for range n % 64 {
				taken.Load() // some steps later each time
			}
			c.Next(&x)
			c.Release()
			taken.Store(n)
		}
	}()
	defer round.Add(2)
	lost := 0
	for n := range int64(50_000) {
		for cl.ev.Reserve() != nil { // full
		}
		cl.ev.Publish()
		sl.down = 1
		cl.noRoom = false
		e.clients.note(sl)
		round.Add(1)
		e.clients.writePending(cl)
		for taken.Load() < n+1 {
			runtime.Gosched()
		}
		if cl.waits() && !cl.mayWrite() {
			lost++
		}
		for cl.mayWrite() {
			e.clients.writePending(cl)
		}
		if cl.waits() {
			cl.pendNote.Del(&sl.pend)
		}
	}
	if lost > 0 {
		t.Errorf("in %d rounds something waited, there was room, and nobody would have looked", lost)
	}
}
