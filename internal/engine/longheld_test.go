package engine

import (
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestLongHeld: of operations to a port that refuses the connection keeps no piece, and another destination of the same socket goes on. When there is room, or
// when the operations are withdrawn, the rest goes on.
func TestLongHeld(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		w := newWorld(t, 2, Config{HardCap: 1, MaxPiece: 64})
		a, b, c := w.opSide(0, 10), w.opSide(1, 20), w.opSide(1, 21)
		for _, s := range []*opSide{a, b} {
			s.buf = s.must(&ipc.Alloc{Size: 64 << 10}).(*ipc.AllocOK).Buffer
			s.mem = s.cl.buffers[s.buf].mem
		}
		b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
		a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
		a.open(a.sock, 1, 0, c.e.addrs.all[0].addr, c.port)
		r := b.expose(0, 64<<10, abi.RightWrite, a)
		a.submit(shm.Sub{Len: 900})
		a.submit(shm.Sub{Len: 800}) // is refused
		w.settle()

		op := a.op(abi.OpWrite, r.Cookie, 0)
		op.Len = 64 << 10
		for range 3 {
			a.submit(shm.Sub{Len: 7}, op)
		}
		a.submit(shm.Sub{Slot: 1, Len: 5})
		w.settle()
		if n := a.cl.slots[0].pieces; n != 0 {
			t.Errorf("the connection has %d pieces", n)
		}
		if c.look(); len(c.msgs) != 1 {
			t.Errorf("%d messages came to the other destination", len(c.msgs))
		}
		want, status := "[900 800 7 7 7 3]", abi.StatusSuccess
		if withdrawn {
			a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock} })
			w.settle()
			want, status = "[900 3]", abi.StatusCanceled
		}
		a.submit(shm.Sub{Len: 3})
		var got []int
		for range 5 {
			w.settle()
			got = append(got, b.all()...)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("messages %v, want %v", got, want)
		}
		if st := a.statuses(); fmt.Sprint(st) != fmt.Sprint([]int{int(status), int(status), int(status)}) || a.hwm() != 3 {
			t.Errorf("statuses %v, HWM %d", st, a.hwm())
		}
		if n := a.cl.slots[0].pieces; n != 0 {
			t.Errorf("%d pieces are left", n)
		}
		w.clean(a.raw, b.raw, c.raw)
	}
}
