package engine

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// TestSocketHandles: a socket whose index was used before has another handle,
// indices are used again oldest first, and a handle of a closed socket names
// nothing: not in a control call, not in a descriptor, not in what comes back.
func TestSocketHandles(t *testing.T) {
	w := newWorld(t, 1, Config{})
	r := w.attach(0, smallParams())
	var old []uint32
	for i := range 3 {
		old = append(old, r.bind(uint16(10+i)))
	}
	r.open(old[1], 0, 0, hostAddr(0), 10)
	w.run()
	for _, i := range []int{1, 0, 2} {
		r.must(&ipc.CloseSock{Sock: old[i]})
	}
	seen := map[uint32]bool{old[0]: true, old[1]: true, old[2]: true}
	var now []uint32
	for i, want := range []uint32{old[1], old[0], old[2]} {
		h := r.bind(uint16(20 + i))
		if shm.SockIndex(h) != shm.SockIndex(want) || seen[h] {
			t.Fatalf("handle %#x, want a new one of index %d", h, shm.SockIndex(want))
		}
		seen[h] = true
		now = append(now, h)
	}
	stale := old[1]
	buf := r.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	for _, req := range []ipc.Request{
		&ipc.CloseSock{Sock: stale}, &ipc.SetRcvBuf{Sock: stale, Bytes: 4096},
		&ipc.Register{Sock: stale, Buffer: buf, Len: 64, Access: 1},
	} {
		if _, err := r.call(req); !errors.Is(err, unix.EBADF) {
			t.Errorf("%T of a closed socket: %v, want EBADF", req, err)
		}
	}
	// Descriptors of the old socket do nothing to the new one; an id comes back.
	r.open(stale, 1, 1, hostAddr(0), 10)
	r.sendMsg(stale, 1, 3, 8)
	r.open(now[0], 2, 2, hostAddr(0), 99)
	r.put(func(e *shm.Entry) { *e.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: stale, Slot: 2} })
	r.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: stale, Slot: 2} })
	w.run()
	r.alive(true)
	if r.cl.slots[1] != nil || r.cl.slots[2] == nil {
		t.Error("a descriptor with a handle of a closed socket opened or closed a destination")
	}
	if id, ok := r.seg.SendRetConsumer().Take(); !ok || id != 3 {
		t.Errorf("message id %d, %v came back, want 3", id, ok)
	}
	// What is told to a socket has its handle.
	r.sendMsg(now[0], 2, 4, 8) // nobody is there
	w.run()
	if ev := r.events(); len(ev) != 1 || ev[0].Notice().Sock != now[0] {
		t.Errorf("events %v, want one notice for %#x", ev, now[0])
	}
	// No handle comes back for as long as generations last.
	h := now[0]
	for n := range 1 << 12 {
		r.must(&ipc.CloseSock{Sock: h})
		was := h
		if h = r.bind(20); h == was || shm.SockIndex(h) != shm.SockIndex(was) {
			t.Fatalf("handle %#x behind %#x in round %d", h, was, n)
		}
	}
	w.clean(r)
}
