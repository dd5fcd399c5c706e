package engine

import (
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// successor closes the socket of b and has another process bind its port at once.
func (w *world) successor(b *opSide) *opSide {
	w.t.Helper()
	host := 0
	for w.es[host] != b.e {
		host++
	}
	b.must(&ipc.CloseSock{Sock: b.sock})
	return w.opSide(host, b.port)
}

// TestOperationMeansOwner: an operation's message goes to the socket that owns the
// memory, or to nobody. The port's next owner does not have the data.
func TestOperationMeansOwner(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		for _, size := range []uint32{4, 100_000} {
			for name, refused := range map[string]bool{"on its way": false, "refused": true} {
				t.Run(fmt.Sprintf("%d hosts/%d bytes/%s", hosts, size, name), func(t *testing.T) {
					w := newWorld(t, hosts, Config{HardCap: 1})
					a, b := w.opSide(0, 10), w.opSide(hosts-1, 20)
					a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
					r := b.expose(0, 64, abi.RightWrite, a)
					sent := 1
					if refused {
						b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
						a.submit(shm.Sub{Len: 2000})
						sent++
					}
					w.run()
					copy(a.mem, "operated")
					a.submit(shm.Sub{Len: size}, a.op(abi.OpWrite, r.Cookie, 0))
					if refused {
						w.run()
						if string(b.mem[:8]) != "operated" || a.statuses()[0] != -1 {
							t.Fatalf("memory %q, status %d", b.mem[:8], a.statuses()[0])
						}
					}
					x := w.successor(b)
					w.run()
					x.look()
					if len(x.msgs) != 0 {
						t.Errorf("the port's next owner got %+v", x.msgs)
					}
					// On one host the key has ended before the operation begins.
					want := int(abi.StatusDropped)
					if hosts == 1 && !refused {
						want = int(abi.StatusRemoteError)
					}
					if st := a.statuses(); st[0] != want || a.hwm() != 1 || len(a.back) != sent {
						t.Errorf("status %d, want %d; HWM %d, %d ids back", st[0], want, a.hwm(), len(a.back))
					}
					w.clean(a.raw, b.raw, x.raw)
				})
			}
		}
	}
}

// TestOperationElsewhere: memory of a socket at another port says nothing about
// the destination, so the message goes to whoever is bound there.
func TestOperationElsewhere(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		y := w.opSide(hosts-1, 21)
		r := y.expose(0, 64, abi.RightWrite, a)
		w.run()
		a.submit(shm.Sub{Len: 4}, a.op(abi.OpWrite, r.Cookie, 0))
		x := w.successor(b)
		w.run()
		x.look()
		if st := a.statuses(); st[0] != int(abi.StatusSuccess) || len(x.msgs) != 1 {
			t.Errorf("%d hosts: status %d, %d messages", hosts, st[0], len(x.msgs))
		}
		w.clean(a.raw, b.raw, x.raw, y.raw)
	}
}

// TestOwnersOfTwo: two operations in one message may be on memory of two sockets,
// but not of two that had the destination's port one after the other.
func TestOwnersOfTwo(t *testing.T) {
	o := [2]*txOp{{}, {}}
	for _, c := range []struct {
		owners [2]rdmaop.Owner
		means  uint32
		errno  unix.Errno
	}{
		{[2]rdmaop.Owner{{Port: 20, Inc: 1}, {Port: 20, Inc: 1}}, 1, 0},
		{[2]rdmaop.Owner{{Port: 21, Inc: 2}, {Port: 20, Inc: 1}}, 1, 0},
		{[2]rdmaop.Owner{{Port: 20, Inc: 1}, {Port: 21, Inc: 2}}, 1, 0},
		{[2]rdmaop.Owner{{Port: 21, Inc: 1}, {Port: 21, Inc: 2}}, 0, 0},
		{[2]rdmaop.Owner{{}, {Port: 20}}, 0, 0},
		{[2]rdmaop.Owner{{Port: 20, Inc: 1}, {Port: 20, Inc: 2}}, 0, unix.EINVAL},
	} {
		m := &txMsg{opv: o, nops: 2}
		m.m.DPort = 20
		bad, errno := m.meansOwner(func(op *txOp) rdmaop.Owner {
			if op == o[0] {
				return c.owners[0]
			}
			return c.owners[1]
		})
		if errno != c.errno || m.m.DstInc != c.means || (errno != 0) != (bad == o[1]) {
			t.Errorf("%+v: %v, means %d", c.owners, errno, m.m.DstInc)
		}
	}
}

// TestDestinationMeets: messages behind the first one of a destination go to the
// socket that took it, or their sender is told; what is submitted then goes to the
// port's next owner.
func TestDestinationMeets(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		a.submit(shm.Sub{Len: 1})
		w.run()
		for n := range uint32(3) {
			a.submit(shm.Sub{Len: 10 + n})
		}
		a.submit(shm.Sub{Len: 100_000})
		x := w.successor(b)
		w.run()
		a.look()
		x.look()
		if got := a.noSocket(); got != 4 || len(x.msgs) != 0 || len(a.back) != 5 {
			t.Errorf("%d hosts: %d told, %d went to the next owner, %d ids back", hosts, got, len(x.msgs), len(a.back))
		}
		a.submit(shm.Sub{Len: 2})
		a.submit(shm.Sub{Len: 3})
		w.run()
		if x.look(); len(x.msgs) != 2 || a.noSocket() != 4 {
			t.Errorf("%d hosts: %d to the next owner, %d told", hosts, len(x.msgs), a.noSocket())
		}
		w.clean(a.raw, b.raw, x.raw)
	}
}

// TestNobodyMet: what finds nobody bound is no tie to anybody, and what waits behind it
// goes on.
func TestNobodyMet(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w := newWorld(t, hosts, Config{})
		a, b := w.opSide(0, 10), w.opSide(hosts-1, 20)
		a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, 21)
		for range 50 {
			a.submit(shm.Sub{Len: 1})
		}
		w.run()
		if a.look(); a.noSocket() != 50 || len(a.back) != 50 {
			t.Errorf("%d hosts: %d told, %d ids back", hosts, a.noSocket(), len(a.back))
		}
		x := w.opSide(hosts-1, 21)
		a.submit(shm.Sub{Len: 1})
		w.run()
		if x.look(); len(x.msgs) != 1 {
			t.Errorf("%d hosts: %d messages", hosts, len(x.msgs))
		}
		w.clean(a.raw, b.raw, x.raw)
	}
}

// TestNamed: a message that names an incarnation goes to that socket only, whatever
// its destination has met.
func TestNamed(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		r := b.expose(0, 64, abi.RightWrite, a)
		w.run()
		inc := b.cl.socks[b.sock].inc
		a.submit(shm.Sub{Len: 1, DstInc: inc})
		a.submit(shm.Sub{Len: 2, DstInc: inc + 1})
		a.submit(shm.Sub{Len: 3, DstInc: inc}, a.op(abi.OpWrite, r.Cookie, 0))
		a.submit(shm.Sub{Len: 4, DstInc: inc + 1}, a.op(abi.OpWrite, r.Cookie, 0))
		w.run()
		b.look()
		st := a.statuses()
		if len(b.msgs) != 2 || b.msgs[0].Len != 1 || b.msgs[1].Len != 3 || a.noSocket() != 1 {
			t.Errorf("%d hosts: delivered %+v, %d told", hosts, b.msgs, a.noSocket())
		}
		if st[0] != int(abi.StatusSuccess) || st[1] != int(abi.StatusRemoteError) || a.told[0].Errno+a.told[1].Errno != uint32(unix.EINVAL) {
			t.Errorf("%d hosts: statuses %v, %+v", hosts, st, a.told)
		}
		x := w.successor(b)
		a.submit(shm.Sub{Len: 5, DstInc: inc})
		a.submit(shm.Sub{Len: 6, DstInc: x.cl.socks[x.sock].inc})
		w.run()
		if x.look(); len(x.msgs) != 1 || x.msgs[0].Len != 6 {
			t.Errorf("%d hosts: the next owner got %+v", hosts, x.msgs)
		}
		w.clean(a.raw, b.raw, x.raw)
	}
}

// TestRestartEndsMet: after a restart of the peer's daemon what was not sent, and what
// is sent from then on, goes to whoever is bound there.
func TestRestartEndsMet(t *testing.T) {
	w, a, b := opPair(t, 2)
	a.submit(shm.Sub{Len: 1})
	w.run()
	a.e.peers.all[0].c.Reset(w.net.Now(), errAdmin)
	b.e.Shutdown()
	w.pass(20*ms, a.e)
	w.es[1] = w.boot(1, 99, Config{})
	y := w.opSide(1, 21) // so that x has another incarnation than b had
	x := w.opSide(1, 20)
	a.submit(shm.Sub{Len: 2})
	a.submit(shm.Sub{Len: 3})
	for range 20 {
		w.run()
	}
	a.submit(shm.Sub{Len: 4})
	w.run()
	if x.look(); len(x.msgs) != 3 || a.noSocket() != 0 {
		t.Errorf("%d messages, %d told", len(x.msgs), a.noSocket())
	}
	w.clean(a.raw, x.raw, y.raw)
}

// noSocket counts the messages of a that found no socket, as it was told.
func (s *opSide) noSocket() (n uint64) {
	s.look()
	for _, x := range s.notes {
		if x.Notice == shm.NoticeNoSocket {
			n += x.Count
		}
	}
	return n
}

// TestNobodyThenTwo: of the messages behind one that found nobody, those behind the
// first that was taken go to the socket that took it, or to nobody.
func TestNobodyThenTwo(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w := newWorld(t, hosts, Config{})
		a, b := w.opSide(0, 10), w.opSide(hosts-1, 20)
		a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, 21)
		for n := range uint32(20) {
			a.submit(shm.Sub{Len: 40_000 + n})
		}
		step := func() {
			w.turnAll()
			w.net.Step()
		}
		for n := 0; a.cl.slots == nil || a.cl.slots[0] == nil || !a.cl.slots[0].pin.gone; n++ {
			if step(); n == 10_000 {
				t.Fatal("nobody says that nobody is there")
			}
		}
		x := w.opSide(hosts-1, 21)
		for n := 0; len(x.msgs) == 0 && n < 1000; n++ {
			step()
			x.look()
		}
		y := w.successor(x)
		w.run()
		x.look()
		y.look()
		if len(x.msgs) > 0 && len(y.msgs) > 0 {
			t.Errorf("%d hosts: %d messages to one owner of the port, %d to the next", hosts, len(x.msgs), len(y.msgs))
		}
		if hosts == 2 && len(x.msgs) == 0 {
			t.Error("nothing was taken")
		}
		w.clean(a.raw, b.raw, x.raw, y.raw)
	}
}
