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

// TestShutdownHolds: what a daemon alone has when it shuts down is lost, and is not acked then, also if the
// process that it was for has been told to end before.
func TestShutdownHolds(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		w, a, b := opPair(t, 2)
		a.submit(shm.Sub{Len: 4})
		w.run()
		w.delivered(a, b, 4)
		e, s := w.es[1], b.cl.sock(b.sock)
		e.rx.queueOver(&rxMsg{sock: s})
		if sessions {
			e.Ends()
			b.at.Close()
			e.chores.Renew()
			e.chores.Run()
		}
		if sessions != (s.over.N == 0) {
			t.Fatalf("sessions end first %v: %d messages", sessions, s.over.N)
		}
		e.Shutdown()
		w.run()
		if a.look(); len(a.back) != 1 || !e.Quiet() {
			t.Errorf("sessions end first %v: returned %v after the shutdown, quiet %v", sessions, a.back, e.Quiet())
		}
	}
}
