package engine

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// TestFreeWaits: Free that waits is answered when the last region, operation and
// payload of the buffer has ended, and nothing new comes into it from the start.
func TestFreeWaits(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.expose(0, 64, abi.RightWrite, a)
	own := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 64, Access: abi.RightRead}).(*ipc.RegisterOK)
	w.run()
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	a.submit(shm.Sub{Flags: shm.SubFromBuf, Buf: a.buf, Len: 100})
	var order []string
	steps := 0
	a.at.Pump = func() {
		switch steps++; steps {
		case 1: // asked: both messages are under way, a region is there
			if n := a.cl.buffers[a.buf].users; n != 3 {
				t.Errorf("%d users of the buffer, want 3", n)
			}
			if _, err := a.call(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 64, Access: abi.RightRead}); !errors.Is(err, unix.EINVAL) {
				t.Errorf("a region of a buffer being freed: %v", err)
			}
			if _, err := a.call(&ipc.Free{Buffer: a.buf}); !errors.Is(err, unix.EINVAL) {
				t.Errorf("a second Free: %v", err)
			}
		case 2:
			w.run()
			if n := a.cl.buffers[a.buf].users; n != 1 {
				t.Errorf("%d users of the buffer, want the region", n)
			}
			order = append(order, "messages")
		case 3:
			order = append(order, "region")
			if err := w.es[0].keys.release(w.es[0].keys.by[own.Region], func(error) {}); err != nil {
				t.Fatal(err)
			}
		default:
			w.run()
		}
	}
	a.must(&ipc.Free{Buffer: a.buf, Wait: 1})
	if len(order) != 2 || len(a.cl.buffers) != 0 {
		t.Errorf("answered after %v, with %d buffers", order, len(a.cl.buffers))
	}
	if b.look(); len(b.msgs) != 2 {
		t.Errorf("%d messages", len(b.msgs))
	}
	a.alive(true)
	w.clean2(a, b)
}
