package engine

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

func TestHelloBounds(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*shm.Params)
		want error
	}{
		{"defaults", func(*shm.Params) {}, nil},
		{"no power of two", func(p *shm.Params) { p.MaxMsgs = 1000 }, unix.EINVAL},
		{"nothing", func(p *shm.Params) { p.Slots = 0 }, unix.EINVAL},
		{"submission ring", func(p *shm.Params) { p.SubEntries = 1 << 20 }, unix.ENOBUFS},
		{"event ring", func(p *shm.Params) { p.EventEntries = 1 << 20 }, unix.ENOBUFS},
		{"message ids", func(p *shm.Params) { p.MaxMsgs = 1 << 20 }, unix.ENOBUFS},
		{"receive ids", func(p *shm.Params) { p.MaxRx = 1 << 20 }, unix.ENOBUFS},
		{"slots", func(p *shm.Params) { p.Slots = 1 << 20 }, unix.ENOBUFS},
		{"cells", func(p *shm.Params) { p.Cells = 1 << 20 }, unix.ENOBUFS},
		{"windows", func(p *shm.Params) { p.RecvWindows = 65 }, unix.ENOBUFS},
	} {
		p := shm.DefaultParams()
		c.edit(&p)
		if _, err := GrantParams(p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestBufferSize(t *testing.T) {
	for _, c := range []struct {
		n, want uint64
		err     error
	}{{1, 4096, nil}, {4096, 4096, nil}, {4097, 8192, nil}, {0, 0, unix.EINVAL}, {1<<40 + 1, 0, unix.EINVAL}, {^uint64(0), 0, unix.EINVAL}} {
		if got, err := BufferSize(c.n); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%d: %d, %v", c.n, got, err)
		}
	}
}

// TestBufferLimits: sizes that overflow, more buffers than a process may have,
// a buffer freed under a region, a region released twice.
func TestBufferLimits(t *testing.T) {
	w := newWorld(t, 1, Config{})
	r := w.attach(0, smallParams())
	s := r.bind(10)
	if _, err := r.call(&ipc.Alloc{Size: ^uint64(0) - 10}); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	b := r.must(&ipc.Alloc{Size: 100}).(*ipc.AllocOK).Buffer
	if _, err := r.call(&ipc.Register{Sock: s, Buffer: b, Off: ^uint64(0), Len: 2, Access: abi.RightRead}); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	g := r.must(&ipc.Register{Sock: s, Buffer: b, Len: 100, Access: abi.RightRead}).(*ipc.RegisterOK).Region
	if _, err := r.call(&ipc.Free{Buffer: b}); !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
	x := w.es[0].keys.by[g]
	answers := 0
	if err := w.es[0].keys.expose(x, hostAddr(1), 0); err != nil {
		t.Fatal(err)
	}
	w.es[0].keys.release(x, func(error) { answers++ })
	if err := w.es[0].keys.release(x, func(error) { answers++ }); w.es[0].keys.by[g] != nil && !errors.Is(err, unix.EALREADY) {
		t.Errorf("released twice: %v", err)
	}
	w.run()
	if answers != 1 {
		t.Errorf("Release answered %d times", answers)
	}
	r.must(&ipc.Free{Buffer: b})
	for range MaxBuffers {
		r.must(&ipc.Alloc{Size: 1})
	}
	if _, err := r.call(&ipc.Alloc{Size: 1}); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("buffer %d: %v", MaxBuffers+1, err)
	}
	r.at.Close()
	w.run()
	if n := w.es[0].st.C[stats.RegisteredBytes]; n != 0 {
		t.Errorf("%d bytes registered in the end", n)
	}
}

// TestSegmentBound: operations with many segments do not take memory without
// bound in whichever of a user's processes, and it counts as the daemon's until the last has gone.
func TestSegmentBound(t *testing.T) {
	w := newWorld(t, 1, Config{})
	r := w.attach(0, smallParams())
	b := r.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	tm := w.es[0].pools.msgs.Get()
	tm.sock = &socket{cl: r.cl}
	r.cl.refs++
	op := w.es[0].pools.ops.Get()
	tm.opv[0], tm.nops = op, 1
	for i := range maxSegs {
		if errno := w.es[0].tx.addSegment(tm, op, b, 0, 1); errno != 0 {
			t.Fatal(i, errno)
		}
	}
	if errno := w.es[0].tx.addSegment(tm, op, b, 0, 1); errno != unix.ENOBUFS {
		t.Error(errno)
	}
	other := w.attach(0, smallParams())
	b2 := other.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	tm2 := w.es[0].pools.msgs.Get()
	tm2.sock = &socket{cl: other.cl}
	if errno := w.es[0].tx.addSegment(tm2, op, b2, 0, 1); errno != unix.ENOBUFS {
		t.Error("another process of the user: ", errno)
	}
	tm2.sock = nil
	w.es[0].pools.msgs.Put(tm2)
	if n, least := w.es[0].Memory().Sum().Records, maxSegs*segBytes; n < least || n > least+opBytesStep {
		t.Errorf("%d bytes of records, want %d", n, least)
	}
	w.es[0].tx.freeMsg(tm)
	if r.cl.segs != 0 || op.Segs != nil {
		t.Errorf("%d segments left, %d kept", r.cl.segs, cap(op.Segs))
	}
	w.clean(r, other)
	if n := w.es[0].Memory().Sum().Records; n != 0 {
		t.Errorf("%d bytes of records of nobody", n)
	}
}
