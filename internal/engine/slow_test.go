package engine

import (
	"bytes"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// slowWorld is a host whose engine's clock moves by each at every look.
type slowWorld struct {
	*world
	now, each     int64
	faults, found int
}

func newSlowWorld(t *testing.T) *slowWorld {
	w := &slowWorld{world: newWorld(t, 1, Config{}), each: 1000}
	w.es[0].WatchMemory(SlowWatch{
		Clock:   func() int64 { w.now += w.each; return w.now },
		Faulted: func() bool { w.faults++; return true },
		Found:   func() { w.found++ },
	})
	return w
}

// turn is one turn of the engine.
func (w *slowWorld) turn() { w.es[0].Turn(w.now, Wall(w.now)) }

// slowTurn is a turn in which every look finds a slow part.
func (w *slowWorld) slowTurn() {
	w.each = slowNs + 1
	w.turn()
	w.each = 1000
}

// big is a side with a buffer of 1 MiB, and a slot that leads to port.
func (w *slowWorld) big(port uint16, uid uint32, to uint16) *opSide {
	w.t.Helper()
	s := w.opSideAs(0, port, uid)
	s.buf = s.must(&ipc.Alloc{Size: 1 << 20}).(*ipc.AllocOK).Buffer
	s.mem = s.cl.buffers[s.buf].mem
	for i := range s.mem {
		s.mem[i] = byte(i*5 + i>>11 + int(port))
	}
	s.open(s.sock, 0, 0, hostAddr(0), to)
	return s
}

// TestSlowMemory: a turn ends with the first slow part of a copy. The users of the memory wait,
// whichever side of the copy is theirs and whatever process it is of, until it has been examined.
// Others do not.
func TestSlowMemory(t *testing.T) {
	w := newSlowWorld(t)
	a, other, b, c := w.big(10, 1000, 10), w.big(11, 1000, 30), w.big(20, 1001, 20), w.big(30, 1002, 10)
	write := func(s *opSide, r *ipc.RegisterOK) {
		op := s.op(abi.OpWrite, r.Cookie, 0)
		op.Len = 1 << 20
		s.submit(shm.Sub{}, op)
	}
	toA, toB := a.expose(0, 1<<20, abi.RightWrite, a), b.expose(0, 1<<20, abi.RightWrite, b)
	a.must(&ipc.Expose{Region: toA.Region, Addr: hostAddr(0), Port: 30})
	w.turn()
	write(a, toA)
	w.turn()
	at := a.cl.slots[0].q.Head.Of.opv[0]
	before := at.copied
	w.slowTurn()
	if got := at.copied - before; got > lookBytes {
		t.Errorf("%d bytes were copied in a turn with a slow part", got)
	}
	if aside := w.es[0].Aside(); !slices.Equal(aside, []uint32{1000}) || w.found != 1 || !w.es[0].Active() || w.es[0].Park() {
		t.Fatalf("set aside: %v, notified %d times", aside, w.found)
	}
	before = at.copied
	write(b, toB)
	write(c, toA)                   // c's memory is not slow, a's is
	other.submit(shm.Sub{Len: 100}) // of the same user
	for range 40 {
		w.turn()
	}
	if b.look(); at.copied != before || len(b.msgs) != 1 {
		t.Errorf("%d bytes copied from memory that is not examined; another user has %d messages", at.copied-before, len(b.msgs))
	}
	c.send[0] = 7
	c.submit(shm.Sub{Len: 1}) // behind c's operation
	w.turn()
	if a.look(); len(a.msgs) != 0 {
		t.Errorf("%d messages", len(a.msgs))
	}
	if c.look(); len(c.msgs) != 0 {
		t.Errorf("a process of the user was heard: %d messages", len(c.msgs))
	}
	w.es[0].GoOn(w.es[0].Aside())
	for range 60 {
		w.turn()
	}
	a.look()
	if c.look(); len(a.msgs) != 3 || len(c.msgs) != 1 || !bytes.Equal(a.mem, c.mem) {
		t.Errorf("after the examination: %d and %d messages", len(a.msgs), len(c.msgs))
	}
	w.clean(a.raw, other.raw, b.raw, c.raw)
}

// TestSlowMessage: a message from slow memory is delivered once, behind those before it, when the
// memory has been examined. What arrives for its sender waits in daemon memory.
func TestSlowMessage(t *testing.T) {
	for name, over := range map[string]bool{"receive memory": false, "daemon memory": true} {
		t.Run(name, func(t *testing.T) {
			w := newSlowWorld(t)
			a, b := w.big(10, 1000, 20), w.big(20, 1001, 10)
			if over {
				b.cl.noRoom = true
			}
			a.submit(shm.Sub{Len: 1})
			a.submit(shm.Sub{Flags: shm.SubFromBuf, Buf: a.buf, Len: 200 << 10})
			a.submit(shm.Sub{Len: 3})
			w.slowTurn()
			if aside := w.es[0].Aside(); !slices.Contains(aside, 1000) {
				t.Fatalf("set aside: %v", aside)
			}
			w.es[0].GoOn([]uint32{1001})
			b.submit(shm.Sub{Len: 5})
			for range 10 {
				w.turn()
			}
			a.look()
			if b.look(); len(a.msgs) != 0 || len(b.msgs) != 1 {
				t.Fatalf("%d and %d messages before the examination", len(a.msgs), len(b.msgs))
			}
			w.es[0].GoOn([]uint32{1000})
			for range 10 {
				w.turn()
			}
			a.look()
			b.look()
			if len(a.msgs) != 1 || len(b.msgs) != 3 || b.msgs[1].Len != 200<<10 || b.msgs[2].Len != 3 {
				t.Fatalf("%d and %d messages", len(a.msgs), len(b.msgs))
			}
			if got := b.cl.recv.Bytes(b.msgs[1].Chunk, 200<<10); !bytes.Equal(got, a.mem[:200<<10]) {
				t.Error("another payload")
			}
			w.clean(a.raw, b.raw)
		})
	}
}

// TestSlowWithoutFaults: a thread that lost its processor is no reason.
func TestSlowWithoutFaults(t *testing.T) {
	w := newSlowWorld(t)
	w.es[0].slow.watch.Faulted = func() bool { w.faults++; return false }
	a := w.big(10, 1000, 10)
	r := a.expose(0, 1<<20, abi.RightWrite, a)
	w.turn()
	op := a.op(abi.OpWrite, r.Cookie, 0)
	op.Len = 1 << 20
	a.submit(shm.Sub{}, op)
	for range 20 {
		w.slowTurn()
	}
	if a.look(); len(a.msgs) != 1 || w.faults == 0 || w.found != 0 {
		t.Errorf("%d messages, %d questions, notified %d times", len(a.msgs), w.faults, w.found)
	}
	w.clean(a.raw)
}

// TestSlowEnds: a user that is set aside and whose processes have ended leaves nothing.
func TestSlowEnds(t *testing.T) {
	w := newSlowWorld(t)
	a := w.big(10, 1000, 10)
	r := a.expose(0, 1<<20, abi.RightWrite, a)
	w.turn()
	op := a.op(abi.OpWrite, r.Cookie, 0)
	op.Len = 1 << 20
	a.submit(shm.Sub{}, op)
	w.slowTurn()
	if w.slow() == 0 {
		t.Fatal("nobody is set aside")
	}
	a.at.Close()
	for range 10 {
		w.turn()
	}
	if n := w.slow(); n != 0 || w.es[0].Aside() != nil {
		t.Errorf("%d users are set aside", n)
	}
	w.clean()
}

func (w *slowWorld) slow() int { return w.es[0].slow.aside }
