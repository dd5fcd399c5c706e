package engine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// TestFromBuffer: a payload goes out of a client's buffer, copied or in place,
// and the buffer cannot be freed before the message id is back.
func TestFromBuffer(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		r := b.expose(0, 64, abi.RightWrite, a)
		w.run()
		big := a.must(&ipc.Alloc{Size: 1 << 20}).(*ipc.AllocOK).Buffer
		mem := a.cl.buffers[big].mem
		for i := range mem {
			mem[i] = byte(i * 7 >> 3)
		}
		for i, c := range []struct {
			off, n uint32
			op     bool
		}{
			{0, 1, false}, {3, 100, false}, {1, 8 << 10, false}, {5, 8<<10 + 1, false}, {1 << 19, 40_000, false}, {1<<20 - 7, 7, true}, {9, 30_000, true},
		} {
			sub := shm.Sub{Flags: shm.SubFromBuf, Buf: big, Off: uint64(c.off), Len: c.n}
			var ops []shm.SubOp
			if c.op {
				ops = append(ops, a.op(abi.OpWrite, r.Cookie, 0))
			}
			a.submit(sub, ops...)
			if a.e.Turn(w.net.Now(), Wall(w.net.Now())); hosts == 2 {
				if _, err := a.call(&ipc.Free{Buffer: big}); !errors.Is(err, unix.EBUSY) {
					t.Fatalf("case %d: Free of a buffer in use: %v", i, err)
				}
			}
			w.run()
			if b.look(); len(b.msgs) != i+1 {
				t.Fatalf("%d hosts, case %d: %d messages", hosts, i, len(b.msgs))
			}
			m := b.msgs[i]
			if got := b.cl.recv.Bytes(m.Chunk, int(m.Len)); !bytes.Equal(got, mem[c.off:c.off+c.n]) {
				t.Errorf("%d hosts, case %d: %d bytes, not those sent", hosts, i, len(got))
			}
		}
		if a.must(&ipc.Free{Buffer: big}); a.cl.buffers[big] != nil {
			t.Error("still there")
		}
		w.clean2(a, b)
	}
}

// TestFromBufferBounds: what the library never does ends the session, and leaves
// nothing.
func TestFromBufferBounds(t *testing.T) {
	const size = 64 << 10
	for _, c := range []struct {
		buf, n uint32
		off    uint64
	}{
		{99, 1, 0}, {0, 1, 0}, {1, 1, size}, {1, 2, size - 1}, {1, size + 1, 0}, {1, 1, ones}, {1, 4096, ones - 100}, {1, abi.MaxMessage + 1, 0},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w, a, b := opPair(t, 2)
			w.run()
			if c.buf == 1 {
				c.buf = a.buf
			}
			a.submit(shm.Sub{Flags: shm.SubFromBuf, Buf: c.buf, Off: c.off, Len: c.n})
			w.run()
			a.alive(false)
			b.alive(true)
			w.clean2(a, b)
		})
	}
}

// TestAssemblyTime: what arrives in one turn took no time, what takes several
// turns does; both say when they were whole.
func TestAssemblyTime(t *testing.T) {
	w, a, b := opPair(t, 2)
	w.run()
	for i, n := range []uint32{0, 64, 1 << 20} {
		start := w.net.Now()
		a.submit(shm.Sub{Len: n})
		w.run()
		if b.look(); len(b.msgs) != i+1 {
			t.Fatalf("%d messages", len(b.msgs))
		}
		m := b.msgs[i]
		if (m.Assembly > 0) != (n == 1<<20) || m.RecvTime-int64(m.Assembly) < start || m.RecvTime > w.net.Now() {
			t.Errorf("%d bytes: %d ns until %d, sent at %d", n, m.Assembly, m.RecvTime, start)
		}
	}
	w.clean2(a, b)
}
