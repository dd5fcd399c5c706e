package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestRoomMeanwhile: a client that takes an event behind the engine's look for room gets what waits: the engine
// will look again.
func TestRoomMeanwhile(t *testing.T) {
	w := newWorld(t, 1, Config{})
	e := w.es[0]
	a := w.attach(0, smallParams())
	s := a.bind(10)
	a.open(s, 0, 0, hostAddr(0), 11)
	e.Turn(1, 1)
	cl, sl := a.cl, a.cl.slots[0]
	for cl.ev.Reserve() != nil { // full
	}
	cl.ev.Publish()
	sl.down = 1
	e.clients.note(sl)
	cl.again, cl.noRoom, cl.full = false, false, false // as writePending
	if n := e.clients.writeNotices(cl); n != 0 {
		t.Fatalf("%d notices written without room", n)
	}
	c, x := a.seg.EventConsumer(), (shm.Entry{})
	if !c.Next(&x) {
		t.Fatal("no event")
	}
	c.Release()
	if cl.passed(); !cl.waits() || !cl.mayWrite() {
		t.Errorf("waits %v, is looked at again %v", cl.waits(), cl.mayWrite())
	}
	e.clients.writePending(cl)
	if cl.waits() {
		t.Error("it waits though there is room")
	}
}
