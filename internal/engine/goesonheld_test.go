package engine

import (
	"bytes"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// Scenarios of what a process can leave in the middle when the engine begins to pause.
var goesHeld = []scenario{
	{"a status of an operation of many pieces waits", 2, Config{MaxPiece: 512}, longToldGoesOn},
	{"an operation within the host is half done", 1, Config{}, halfCopiedGoesOn},
	{"a half done operation within the host is cancelled", 1, Config{}, halfCancelledGoesOn},
	{"a half done operation within the host reaches its limit", 1, Config{}, halfLimitedGoesOn},
	{"the region of a half done operation is released", 1, Config{}, halfReleasedGoesOn},
	{"the target of a half done operation ends", 1, Config{}, halfOrphanedGoesOn},
	{"messages that ask for their status", 2, Config{}, outcomesGoOn},
	{"the last homeless destination was closed", 2, Config{MaxPeers: 1}, homelessClosedGoesOn},
}

// longToldGoesOn: operations of many pieces have ended, and the event ring has no room for their
// statuses. One of them failed.
func longToldGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	r := far.expose(0, 8192, abi.RightWrite|abi.RightRead, a)
	x.settle()
	x.fill(a)
	for _, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead} {
		op := a.op(kind, r.Cookie, 0)
		op.Len = 8192
		x.send(a, 0, 10, shm.Sub{}, op)
	}
	x.settle(a)
	if n := a.cl.pendOps.N; n != 2 {
		x.t.Fatalf("%d statuses wait", n)
	}
	x.pause()
	x.settle(a)
	x.settle()
	x.settle()
}

// half leaves an operation of 1 MiB within the host half done, with others behind it. The
// region is for one use. Another process may use the region too.
func half(x *played, limit uint32) (a, b, c *opSide, r *ipc.RegisterOK) {
	a, b, c = x.side(0, 10), x.side(0, 20), x.side(0, 30)
	x.open(a, 0, 0, b)
	x.open(c, 0, 0, b)
	for _, s := range []*opSide{a, b} {
		s.buf = s.must(&ipc.Alloc{Size: 1 << 20}).(*ipc.AllocOK).Buffer
		s.mem = s.cl.buffers[s.buf].mem
	}
	for i := range a.mem {
		a.mem[i] = byte(i*5 + i>>11)
	}
	r = b.expose(0, 1<<20, abi.RightWrite|abi.UseOnce, a)
	b.must(&ipc.Expose{Region: r.Region, Addr: hostAddr(0), Port: 30})
	x.settle()
	op := a.op(abi.OpWrite, r.Cookie, 0)
	op.Len = 1 << 20
	x.send(a, 0, 10, shm.Sub{GiveUp: limit}, op)
	x.send(a, 0, 20, shm.Sub{}, op) // the region has had its use by then
	x.send(a, 0, 30, shm.Sub{})
	for range 2 {
		x.es[0].Turn(x.net.Now(), Wall(x.net.Now()))
	}
	first := func() *txOp { return a.cl.slots[0].q.Head.Of.opv[0] }
	done := first().copied
	x.pause()
	if o := first(); done == 0 || o.copied == o.Len || o.copied != done+copySlice { // of the turn behind the pause
		x.t.Fatalf("%d bytes were copied before the pause, %d of %d in the turn after it", done, o.copied, o.Len)
	}
	return a, b, c, r
}

// halfCopiedGoesOn: it goes on where it stopped. What was copied is not copied again, and nobody
// else may use the region.
func halfCopiedGoesOn(x *played) {
	_, b, c, r := half(x, 0)
	copy(b.mem, "the target's own")
	x.send(c, 0, 40, shm.Sub{}, c.op(abi.OpWrite, r.Cookie, 0))
	x.settle()
	x.say(b, "%q", b.mem[:16])
}

func halfCancelledGoesOn(x *played) {
	a, b, c, r := half(x, 0)
	a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock, Slot: 0} })
	x.settle()
	x.send(c, 0, 40, shm.Sub{}, c.op(abi.OpWrite, r.Cookie, 0)) // it has had its use
	x.settle()
	x.later(b, &ipc.Release{Region: r.Region})
}

func halfLimitedGoesOn(x *played) {
	a, _, _, _ := half(x, 1)
	x.say(a, "%d limits are set", x.es[0].due.limits.Len())
	x.settle()
}

func halfReleasedGoesOn(x *played) {
	_, b, _, r := half(x, 0)
	x.later(b, &ipc.Release{Region: r.Region})
	x.settle()
}

func halfOrphanedGoesOn(x *played) {
	_, b, _, _ := half(x, 0)
	x.es[0].Detach(b.cl)
	x.settle(b)
}

// outcomesGoOn: messages that ask for their status wait for a host that is away, and a has no room
// for those that have ended.
func outcomesGoOn(x *played) {
	a, b, far := x.side(0, 10), x.side(0, 20), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.open(a, 1, 1, b)
	a.open(a.sock, 2, 1, hostAddr(0), 99) // nobody
	a.open(a.sock, 3, 0, hostAddr(1), 99) // nobody
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	x.cut()
	asks := shm.Sub{Flags: shm.SubNotify}
	x.send(a, 0, 20, asks)
	x.send(a, 0, 30, shm.Sub{})
	x.send(a, 0, 40, shm.Sub{Flags: shm.SubNotify, GiveUp: 40})
	x.send(a, 3, 50, asks)
	x.settle()
	x.fill(a)
	for slot := range uint32(2) {
		x.send(a, 1+slot, 60, asks)
		x.send(a, 1+slot, 70, shm.Sub{})
	}
	x.settle(a)
	if n := a.cl.pendOps.N; n != 2 {
		x.t.Fatalf("%d statuses wait", n)
	}
	x.pause()
	x.settle(a)
	x.settle()
	x.pass(50*ms, x.es...)
	x.mend()
	x.settle()
}

// homelessClosedGoesOn: a destination waited for room for one more peer, and was closed.
func homelessClosedGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	a.open(a.sock, 1, 1, nobody(1), 9)
	x.es[0].Turn(x.net.Now(), Wall(x.net.Now()))
	a.put(func(e *shm.Entry) { *e.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: a.sock, Slot: 1} })
	x.es[0].Turn(x.net.Now(), Wall(x.net.Now()))
	if at := x.es[0].dests.nowhere.at(); at != 0 {
		x.t.Errorf("room is looked for at %d", at)
	}
	x.pause()
	x.send(a, 0, 20, shm.Sub{})
	x.settle()
}

// TestLongOtherPiece: an operation that goes in pieces goes on in pieces with an engine whose
// pieces are longer than the whole. Nothing of it runs twice.
func TestLongOtherPiece(t *testing.T) {
	w := newWorld(t, 2, Config{MaxPiece: 512})
	a, far := w.opSide(0, 10), w.opSide(1, 40)
	a.open(a.sock, 0, 0, hostAddr(1), 40)
	r := far.expose(0, 64<<10, abi.RightWrite, a)
	w.run()
	for i := range a.mem {
		a.mem[i] = 0xaa
	}
	op := a.op(abi.OpWrite, r.Cookie, 0)
	op.Len = 64 << 10
	a.submit(shm.Sub{Len: 10}, op)
	w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
	w.es[0].Halt()
	for n := 0; !w.es[0].Halted(); n++ {
		if w.pass(ms/4, w.es...); n > 10_000 {
			t.Fatal("never stands still")
		}
	}
	m := a.cl.slots[0].q.Head.Of
	if m.long == nil || m.long.at >= op.Len {
		t.Fatal("the operation is not in the middle of its pieces")
	}
	done := int(m.long.at) - 512*m.long.pieces.N // those that the connection has may have been written, or not
	if done == 0 {
		t.Fatal("no piece is done")
	}
	for i := range far.mem[:done] {
		far.mem[i] = 0xbb
	}
	w.succeed(0, func(d verbs.Device) verbs.Device { return d }, Config{MaxPiece: abi.MaxRDMA}, a)
	w.run()
	w.run()
	if st := a.statuses(); len(st) != 1 || st[0] != int(abi.StatusSuccess) {
		t.Errorf("statuses %v", st)
	}
	if !bytes.Equal(far.mem[:done], bytes.Repeat([]byte{0xbb}, done)) || !bytes.Equal(far.mem[done:], a.mem[done:]) {
		t.Errorf("the %d bytes that were written before were written again, or the rest was not", done)
	}
	w.clean2(a, far)
}
