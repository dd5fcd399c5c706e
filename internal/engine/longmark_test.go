package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestLongMark: when the connection breaks in the middle of an operation that goes in pieces,
// the mark waits with the operation. With pieces on their way that is until the next handshake
// or for the settle time, because the operation goes on if they have arrived. With none it is
// until the peer is there again: the operation is as one that was not posted.
func TestLongMark(t *testing.T) {
	for _, open := range []bool{true, false} {
		w := newWorld(t, 2, Config{HardCap: 1, MaxPiece: 512})
		a, b := w.opSide(0, 10), w.opSide(1, 20)
		a.open(a.sock, 0, 0, hostAddr(1), b.port)
		b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
		r := b.expose(0, 32<<10, abi.RightWrite, a)
		for i := range a.mem {
			a.mem[i] = byte(i>>8) + 1
		}
		a.submit(shm.Sub{Len: 900})
		w.settle()
		op := a.op(abi.OpWrite, r.Cookie, 0)
		op.Len = 32 << 10
		a.submit(shm.Sub{Len: 5}, op)
		x := &longRun{T: t, w: w, a: a, b: b}
		m := func() *txMsg { return a.cl.msgs[1] }
		for m() == nil || m().long == nil || m().long.at < 4096 {
			x.step()
		}
		if !open { // another message has the port refuse
			other := w.opSide(0, 11)
			other.open(other.sock, 0, 0, hostAddr(1), b.port)
			other.submit(shm.Sub{Len: 800})
			for m().long == nil || m().long.pieces.N > 0 || m().handed {
				x.step()
			}
		}
		if l := m().long; m().handed || (l.pieces.N > 0) != open {
			t.Fatalf("open %v: %d pieces, handed %v", open, l.pieces.N, m().handed)
		}
		w.net.Faults.Unreachable = 1e6
		x.reset()
		w.pass(1000*ms, w.es...)
		if st := a.statuses()[0]; st != -1 || a.hwm() != 0 {
			t.Errorf("open %v: a second later: status %d, mark %d", open, st, a.hwm())
		}
		w.pass(40_000*ms, w.es...)
		want := map[bool]int{true: int(abi.StatusDropped), false: -1}[open]
		if st := a.statuses()[0]; st != want || a.hwm() != uint64(1+min(want, 0)) {
			t.Errorf("open %v: after the settle time: status %d, mark %d", open, st, a.hwm())
		}
		w.net.Faults.Unreachable = 0
		for range 5 {
			w.pass(2000*ms, w.es...)
			b.datagrams()
		}
		if st := a.statuses()[0]; st != max(want, 0) || a.hwm() != 1 {
			t.Errorf("open %v: in the end: status %d, mark %d", open, st, a.hwm())
		}
		if moved := string(a.mem[:32<<10]) == string(b.mem[:32<<10]); moved == open {
			t.Errorf("open %v: moved %v", open, moved)
		}
	}
}
