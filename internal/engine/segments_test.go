package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs/sim"
)

// TestManySegments: an operation of more segments than a queue pair takes in one
// request, on a device that could take more, as most adapters can.
func TestManySegments(t *testing.T) {
	const segments = 100
	w := &world{t: t, net: sim.NewNetwork(1)}
	w.net.Attr.MaxSGE, w.net.Attr.MaxReadSGE = 2*qpSGE, 2*qpSGE
	w.net.At(1, func() {})
	w.net.Step()
	for i := range 2 {
		w.es = append(w.es, w.boot(i, uint64(i)+1, Config{}))
	}
	a, b := w.opSide(0, 10), w.opSide(1, 20)
	a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
	r := b.expose(0, segments, abi.RightRead|abi.RightWrite, a)
	w.run()
	for i, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead} {
		for s := range segments {
			a.mem[2*s], b.mem[s] = byte(s), byte(200-s)
			shm.PutSegEntry(a.send[16*shm.Unit+s*shm.SegEntrySize:], shm.SegEntry{Region: a.buf, Off: uint64(2 * s), Len: 1})
		}
		op := a.op(kind, r.Cookie, 0)
		op.NSeg, op.SegChunk, op.Len = segments, 16, segments
		a.submit(shm.Sub{}, op)
		w.run()
		if st := a.statuses(); st[i] != int(abi.StatusSuccess) {
			t.Fatalf("%d: status %d", kind, st[i])
		}
		for s := range segments {
			want := byte(s)
			if kind == abi.OpRead {
				want = byte(200 - s)
			}
			if a.mem[2*s] != want || b.mem[s] != want {
				t.Fatalf("%d: segment %d is %d here and %d there, want %d", kind, s, a.mem[2*s], b.mem[s], want)
			}
		}
	}
	w.clean2(a, b)
}
