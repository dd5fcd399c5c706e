package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
)

// TestOverrunLeavesPort: a socket that a kernel overran is off its port for good: what
// happens to it later says nothing of the port, whose next owner begins uncongested.
func TestOverrunLeavesPort(t *testing.T) {
	for _, how := range []string{"the receive buffer shrinks", "it is closed"} {
		w := newWorld(t, 1, Config{})
		a, b, x := w.attach(0, smallParams()), w.attach(0, smallParams()), w.attach(0, smallParams())
		sa, sb := a.bind(9), b.bind(10)
		e := w.es[0]
		a.open(sa, 0, 0, hostAddr(0), 10)
		for i := range uint32(8) {
			a.sendMsg(sa, 0, i, 1000)
		}
		w.run()
		l := e.addrs.all[0]
		e.rx.overrun(l.ports.Get(10), hostAddr(1)) // as noMemory does for a kernel peer's message
		w.run()
		if how == "the receive buffer shrinks" {
			b.must(&ipc.SetRcvBuf{Sock: sb, Bytes: 1000})
		}
		x.bind(10)
		if l.cong.Test(10) {
			t.Errorf("%s: the port's next owner begins congested", how)
		}
		b.must(&ipc.CloseSock{Sock: sb})
		w.run()
		if l.ports.Get(10) == nil || l.cong.Test(10) {
			t.Errorf("%s: port 10 is bound: %v, congested: %v", how, l.ports.Get(10) != nil, l.cong.Test(10))
		}
		w.clean(a, b, x)
	}
}

// TestOverrunWakesWaiters: senders of this host that wait for room at a socket do not
// wait for it any more when it is off its port.
func TestOverrunWakesWaiters(t *testing.T) {
	w := newWorld(t, 1, Config{HardCap: 1})
	a, b := w.opSide(0, 9), w.opSide(0, 10)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 2000})
	e := w.es[0]
	a.open(a.sock, 0, 0, hostAddr(0), 10)
	for i := range uint32(5) {
		a.sendMsg(a.sock, 0, i, 1000)
	}
	w.run()
	s := e.addrs.all[0].ports.Get(10)
	if s.waiters.N != 1 {
		t.Fatalf("%d wait for a socket with %d bytes", s.waiters.N, s.rcvBytes)
	}
	e.rx.overrun(s, hostAddr(1))
	w.run()
	if a.look(); a.noSocket() == 0 || len(a.back) != 5 {
		t.Errorf("%d told, %d ids back", a.noSocket(), len(a.back))
	}
	x := w.opSide(0, 10)
	a.sendMsg(a.sock, 0, 100, 10)
	w.run()
	if x.look(); len(x.msgs) != 1 {
		t.Errorf("the port's next owner got %d messages", len(x.msgs))
	}
	w.clean(a.raw, b.raw, x.raw)
}
