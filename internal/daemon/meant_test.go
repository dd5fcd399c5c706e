package daemon

import (
	"fmt"
	"testing"

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
					w := newWorld(t, hosts, EngineConfig{HardCap: 1})
					a, b := w.opSide(0, 10), w.opSide(hosts-1, 20)
					a.open(a.sock, 0, 0, b.e.localsV[0].addr, b.port)
					r := b.expose(0, 64, rdmaop.RightWrite, a)
					sent := 1
					if refused {
						b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
						a.submit(shm.Sub{Len: 2000})
						sent++
					}
					w.run()
					copy(a.mem, "operated")
					a.submit(shm.Sub{Len: size}, a.op(shm.OpWrite, r.Cookie, 0))
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
					want := int(shm.StatusDropped)
					if hosts == 1 && !refused {
						want = int(shm.StatusRemoteError)
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
		r := y.expose(0, 64, rdmaop.RightWrite, a)
		w.run()
		a.submit(shm.Sub{Len: 4}, a.op(shm.OpWrite, r.Cookie, 0))
		x := w.successor(b)
		w.run()
		x.look()
		if st := a.statuses(); st[0] != int(shm.StatusSuccess) || len(x.msgs) != 1 {
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
