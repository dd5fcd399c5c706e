package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// delivered has a send a message to b, and turns until b has it and a has no ack.
func (w *world) delivered(a, b *opSide, n uint32) {
	w.t.Helper()
	a.look()
	b.look()
	had := len(b.msgs)
	acked := len(a.back)
	a.submit(shm.Sub{Len: n})
	for b.look(); len(b.msgs) == had; b.look() {
		for _, e := range w.es {
			e.Turn(w.net.Now(), Wall(w.net.Now()))
		}
		w.net.Step()
	}
	if a.look(); len(a.back) != acked {
		w.t.Fatal("acked before its time")
	}
}

// TestShutdownAcks: what a daemon has delivered when it shuts down is acked, though the ack was not due yet.
func TestShutdownAcks(t *testing.T) {
	w, a, b := opPair(t, 2)
	a.submit(shm.Sub{Len: 4}) // meets the socket
	w.run()
	w.delivered(a, b, 4)
	w.es[1].Shutdown()
	w.run()
	if a.look(); len(a.back) != 2 || !w.es[1].Quiet() {
		t.Errorf("returned %v after the shutdown, quiet %v", a.back, w.es[1].Quiet())
	}
	for _, n := range a.notes {
		if n.Notice != shm.NoticePeerDown && n.Notice != shm.NoticeUnreachable {
			t.Errorf("notice %d", n.Notice)
		}
	}
}

// TestShutdownHolds: what a daemon alone has when it shuts down is lost, and is not acked then, in its own memory
// and in that of a client that has not been told.
func TestShutdownHolds(t *testing.T) {
	for name, hold := range map[string]func(e *Engine, s *socket){
		"its own memory": func(e *Engine, _ *socket) { e.rx.overflow.used++ },
		"untold":         func(e *Engine, s *socket) { e.rx.queueOver(&rxMsg{sock: s}) },
	} {
		w, a, b := opPair(t, 2)
		a.submit(shm.Sub{Len: 4})
		w.run()
		w.delivered(a, b, 4)
		hold(w.es[1], b.cl.sock(b.sock))
		w.es[1].Shutdown()
		w.run()
		if a.look(); len(a.back) != 1 || !w.es[1].Quiet() {
			t.Errorf("%s: returned %v after the shutdown, quiet %v", name, a.back, w.es[1].Quiet())
		}
	}
}
