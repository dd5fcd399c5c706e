package engine

import (
	"testing"

	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/chores"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestCloseSockOfBusyClient: CloseSock handles what was submitted before it and
// ends, however fast the client goes on submitting.
func TestCloseSockOfBusyClient(t *testing.T) {
	w := newWorld(t, 1, Config{})
	r := w.attach(0, smallParams())
	s := r.bind(10)
	cancel := func() {
		for r.seg.SubProducer().Free() > 0 {
			r.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Slot: 7} })
		}
	}
	asked := 0
	r.at.Run = func(f func()) {
		cancel() // another thread of the client
		f()
		if asked++; asked > 1000 {
			t.Fatal("CloseSock never ends")
		}
	}
	r.must(&ipc.CloseSock{Sock: s})
	if asked > 10 {
		t.Errorf("%d turns for one ring of descriptors", asked)
	}
	w.run()
	w.clean(r)
}

// TestCancelWhileRefused: withdrawing what a socket of the same host refused
// leaves nothing with that socket.
func TestCancelWhileRefused(t *testing.T) {
	w := newWorld(t, 1, Config{HardCap: 1})
	a, b := w.attach(0, smallParams()), w.attach(0, smallParams())
	from := a.bind(10)
	to := b.must(&ipc.Bind{Addr: hostAddr(0), Port: 11, RcvBuf: 1}).(*ipc.BindOK).Sock
	a.open(from, 0, 0, hostAddr(0), 11)
	a.sendMsg(from, 0, 0, 100)
	w.run()
	for range 50 {
		a.sendMsg(from, 0, 1, 100)
		w.run()
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Slot: 0} })
		w.run()
		a.alive(true)
	}
	if n := b.cl.socks[to].waiters.N; n != 0 {
		t.Errorf("%d waiters at the socket that refused", n)
	}
	w.clean(a, b)
}

// TestCellOfClosedSocket: what is late of a closed socket does not touch the
// barrier cell's next user.
func TestCellOfClosedSocket(t *testing.T) {
	w := newWorld(t, 1, Config{})
	r := w.attach(0, smallParams())
	s := r.bind(10)
	r.open(s, 0, 5, hostAddr(0), 11)
	w.run()
	old := r.cl.cells[5]
	// An operation of the old socket becomes locally complete with the event
	// ring full, and its socket is closed.
	var op barrier.Op
	if err := old.mark.Issue(&op, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := old.mark.Complete(&op); err != nil {
		t.Fatal(err)
	}
	r.cl.pendCells.Add(&old.pend, old)
	r.must(&ipc.CloseSock{Sock: s})
	s = r.bind(12)
	r.seg.WantCell(5).StoreArmed(1)
	w.es[0].clients.raise(old) // and one completes later still
	w.es[0].clients.writePending(r.cl)
	w.run()
	if r.seg.WantCell(5).LoadArmed() != 1 {
		t.Error("the new owner's wish was answered for the old one")
	}
	r.open(s, 0, 5, hostAddr(0), 11)
	w.run()
	r.alive(true)
	w.clean(r)
}

// TestPongFlood: answers that nobody waits for do not stop the engine.
func TestPongFlood(t *testing.T) {
	w := newWorld(t, 2, Config{})
	x, err := w.es[0].Ping(hostAddr(1), 0, 0, make(chan struct{}, 1), func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	p := w.es[0].peers.all[0]
	for range 10 {
		if v, _ := hostOf(p).Deliver(nil, &wire.Header{DPort: x.sock.port}, nil); v != conn.Accepted {
			t.Fatal(v)
		}
	}
	x.End()
	w.run()
	w.clean()
}

// arrived runs the world until r has read all messages, and returns how many: its ring has room for a few.
func (w *world) arrived(r *raw) (all int) {
	for {
		w.run()
		got := r.read()
		if all += got; got == 0 {
			return all
		}
	}
}

// TestSentBeforeTheEnd: what a socket sent before its close, or before the end of its process,
// arrives if neither the network nor the receiver had to be waited for, also if the engine has
// not seen it before. What waits for a connection is withdrawn.
func TestSentBeforeTheEnd(t *testing.T) {
	const n = 12
	for name, to := range map[string]int{"another host": 1, "this host": 0} {
		for end, f := range map[string]func(r *raw, s uint32){
			"close":   func(r *raw, s uint32) { r.must(&ipc.CloseSock{Sock: s}) },
			"process": func(r *raw, _ uint32) { r.at.Close() },
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				w := newWorld(t, 2, Config{})
				a, b := w.attach(0, smallParams()), w.attach(to, smallParams())
				b.must(&ipc.Bind{Addr: hostAddr(to), Port: 20, RcvBuf: 1 << 20})
				s := a.bind(10)
				a.open(s, 0, 0, hostAddr(to), 20)
				a.sendMsg(s, 0, 0, 10)
				w.run()
				if got := b.read(); got != 1 {
					t.Fatalf("%d messages while the connection is made", got)
				}
				a.open(s, 1, 1, nobody(1), 20)
				for id := range uint32(n) {
					a.sendMsg(s, 0, 1+id, 100)
					a.sendMsg(s, 1, 1+n+id, 100)
				}
				f(a, s)
				if got := w.arrived(b); got != n {
					t.Errorf("%d of %d messages arrived", got, n)
				}
				w.clean(a, b)
			})
		}
	}
}

// TestIdleCloseIsCheap: who closes sockets that have nothing to send, or that there are not, as often as
// it can, has no turn do more work of others than it would do anyway.
func TestIdleCloseIsCheap(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.attach(0, smallParams()), w.attach(0, smallParams())
	s, idle := a.bind(10), b.bind(11)
	a.open(s, 0, 0, hostAddr(1), 20)
	a.sendMsg(s, 0, 0, 10)
	e := w.es[0]
	e.chores.Renew()
	e.tx.pollClient(a.cl)
	if len(e.dirty.flush) != 1 {
		t.Fatalf("%d peers have something to send", len(e.dirty.flush))
	}
	for _, h := range []uint32{1 << 20, idle} {
		_, err := e.Serve(b.cl, &ipc.CloseSock{Sock: h}, &RingPlace{})
		if (err == nil) != (h == idle) || len(e.dirty.flush) != 1 {
			t.Errorf("socket %#x: %v, %d peers have something to send", h, err, len(e.dirty.flush))
		}
	}
	w.run()
	w.clean(a, b)
}

// TestClosesInTurns: of sockets that are closed at once with messages that have not gone out, a turn
// takes a few, and the others wait for another turn. All messages arrive.
func TestClosesInTurns(t *testing.T) {
	const n = 10
	w := newWorld(t, 2, Config{})
	a, b := w.attach(0, smallParams()), w.attach(1, smallParams())
	b.must(&ipc.Bind{Addr: hostAddr(1), Port: 20, RcvBuf: 1 << 20})
	var socks [n]uint32
	for i := range socks {
		socks[i] = a.bind(uint16(10 + i))
		a.open(socks[i], uint32(i), uint32(i), hostAddr(1), 20)
		a.sendMsg(socks[i], uint32(i), uint32(i), 10)
	}
	if got := w.arrived(b); got != n {
		t.Fatalf("%d of %d messages while the connection is made", got, n)
	}
	for i, s := range socks {
		a.sendMsg(s, uint32(i), uint32(n+i), 10)
	}
	var places [n]RingPlace
	e, first := w.es[0], 0 // behind the first turn the messages of all have gone out
	for turn, left := 0, n; left > 0; turn++ {
		e.chores.Renew()
		left = 0
		for i, s := range socks {
			_, err := e.Serve(a.cl, &ipc.CloseSock{Sock: s}, &places[i])
			switch {
			case err == errAgain:
				left++
			case err != nil && turn == 0:
				t.Fatal(err)
			}
			if turn == 0 && places[i].closing != nil {
				first++
			}
		}
		w.run()
	}
	if got := w.arrived(b); got != n || first == 0 || first > chores.Budget/sendNowCost {
		t.Errorf("%d of %d messages arrived, %d closes in a turn", got, n, first)
	}
	w.clean(a, b)
}
