package engine

import (
	"encoding/binary"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Scenarios of operations, regions, statuses and marks.
var goesOp = []scenario{
	{"operations on one host", 1, Config{HardCap: 1}, sameHostGoesOn},
	{"a region for one use", 1, Config{}, onceGoesOn},
	{"a region for one use in use", 1, Config{HardCap: 1}, inUseGoesOn},
	{"a region for one use of another host", 2, Config{}, onceFarGoesOn},
	{"a region whose use was told", 2, Config{}, endedGoesOn},
	{"statuses and marks", 2, Config{}, statusesGoOn},
	{"a barrier", 2, Config{}, barrierGoesOn},
	{"operations that wait", 2, Config{}, waitingOpsGoOn},
	{"an operation of many pieces", 2, Config{MaxPiece: 512}, longGoesOn},
	{"an operation of many pieces that is withdrawn", 2, Config{MaxPiece: 512}, longEndsGoesOn},
	{"a quota of operations", 2, Config{Policy: twoOps()}, quotaGoesOn},
	{"a region is released", 2, Config{}, releaseGoesOn},
	{"rights", 2, Config{}, rightsGoOn},
	{"keys that are asked for", 2, Config{}, askGoesOn},
}

// twoOps lets users other than root have two operations in progress, two grants, two sockets and
// 100 KiB of buffers.
func twoOps() *config.Policy {
	q := config.NoQuota()
	q[config.Operations], q[config.Grants], q[config.Sockets], q[config.RegisteredBytes] = 2, 2, 2, 100<<10
	return &config.Policy{Quotas: config.Quotas{User: q}, Owner: 500}
}

// sameHostGoesOn: operations within the host have run, and their messages wait at a full socket.
// Nothing of them runs again: what the target's owner has written since stays.
func sameHostGoesOn(x *played) {
	a, b, c := x.side(0, 10), x.side(0, 20), x.side(0, 30)
	x.open(a, 0, 0, b)
	x.open(c, 0, 0, b)
	r := b.expose(0, 64, abi.RightWrite|abi.RightRead, a)
	words := b.expose(64, 64, abi.RightAtomic, a)
	plain := b.expose(128, 64, abi.RightWrite, c)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 500})
	x.settle()
	x.send(a, 0, 800, shm.Sub{})
	x.settle(b)
	copy(a.mem, "written!")
	x.send(a, 0, 100, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 8), a.args(a.op(abi.OpFetchAdd, words.Cookie, 0), shm.AtomicEntry{CompareAdd: 5}))
	silent := c.op(abi.OpWrite, plain.Cookie, 0)
	silent.Flags |= abi.FlagSilent
	copy(c.mem, "silent")
	x.send(c, 0, 90, shm.Sub{})
	x.send(c, 0, 0, shm.Sub{}, silent)
	x.settle(b)
	x.pass(3*ms, x.es...)
	x.pause()
	copy(b.mem[8:], "mine now")
	copy(a.mem, "and more")
	x.send(a, 0, 60, shm.Sub{}, a.op(abi.OpRead, r.Cookie, 8))
	x.settle(b)
	for range 3 {
		x.settle()
		x.give(b)
	}
	x.say(b, "%q, a word %d", b.mem[8:16], binary.NativeEndian.Uint64(b.mem[64:]))
}

// onceGoesOn: a region for one use had it, of which its owner was not told, and cannot be used
// again.
func onceGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	other := b.bind(21)
	a.open(a.sock, 0, 0, hostAddr(0), 21)
	r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, a)
	fresh := b.expose(64, 64, abi.RightWrite|abi.UseOnce, a)
	x.settle()
	x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.settle()
	x.pause()
	x.send(a, 0, 20, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.send(a, 0, 20, shm.Sub{}, a.op(abi.OpWrite, fresh.Cookie, 0))
	x.settle()
	x.send(a, 0, 20, shm.Sub{}, a.op(abi.OpWrite, fresh.Cookie, 0))
	x.later(b, &ipc.Release{Region: r.Region})
	x.settle()
	x.ask(b, &ipc.Expose{Region: fresh.Region, Addr: hostAddr(3), Port: 9})
	x.ask(b, &ipc.CloseSock{Sock: other})
}

// inUseGoesOn: a message that uses a region for one use waits, so no other one may.
func inUseGoesOn(x *played) {
	a, b, c := x.side(0, 10), x.side(0, 20), x.side(0, 30)
	x.open(a, 0, 0, b)
	x.open(c, 0, 0, b)
	r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, a)
	b.must(&ipc.Expose{Region: r.Region, Addr: hostAddr(0), Port: 30})
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 500})
	x.settle()
	x.send(a, 0, 800, shm.Sub{})
	x.settle(b)
	x.send(a, 0, 100, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.settle(b)
	x.pause()
	x.send(c, 0, 50, shm.Sub{}, c.op(abi.OpWrite, r.Cookie, 0))
	x.settle(b)
	for range 3 {
		x.settle()
		x.give(b)
	}
	x.later(b, &ipc.Release{Region: r.Region})
}

// onceFarGoesOn: a region for one use is one host's to use, and no other's.
func onceFarGoesOn(x *played) {
	b, far, c := x.side(0, 20), x.side(1, 40), x.side(0, 30)
	x.open(far, 0, 0, b)
	x.open(c, 0, 0, b)
	r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, far)
	here := b.expose(64, 64, abi.RightWrite|abi.UseOnce, c)
	x.settle()
	x.pause()
	x.ask(b, &ipc.Expose{Region: r.Region, Addr: hostAddr(0), Port: 30})
	x.ask(b, &ipc.Expose{Region: here.Region, Addr: hostAddr(1), Port: 40})
	x.settle()
	x.send(c, 0, 20, shm.Sub{}, c.op(abi.OpWrite, r.Cookie, 0))
	x.send(far, 0, 30, shm.Sub{}, far.op(abi.OpWrite, r.Cookie, 0))
	x.settle()
	x.later(b, &ipc.Release{Region: r.Region})
}

// endedGoesOn: the one use of a region was told to its owner, and a host that is away has to give
// the key back. The owner's Release waits for that, and says that the region is not its own.
func endedGoesOn(x *played) {
	b, far := x.side(0, 20), x.side(1, 40)
	x.open(far, 0, 0, b)
	r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, far)
	x.settle()
	x.send(far, 0, 30, shm.Sub{}, far.op(abi.OpWrite, r.Cookie, 0))
	for k := x.es[0].keys.by[r.Region]; k != nil && !k.ended; {
		x.pass(1000, x.es...)
	}
	if k := x.es[0].keys.by[r.Region]; k == nil {
		x.t.Fatal("gone without an answer")
	}
	x.net.Faults.Unreachable = 1e6
	for _, e := range x.es {
		ResetPeers(e, hostAddr(0), nil, nil)
		ResetPeers(e, hostAddr(1), nil, nil)
	}
	x.pause()
	x.later(b, &ipc.Release{Region: r.Region})
	x.settle()
	x.mend()
	x.settle()
}

// statusesGoOn: a's event ring is full. Statuses wait for it, and the mark waits for the statuses.
func statusesGoOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	r := far.expose(0, 64, abi.RightWrite, a)
	x.settle()
	x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.settle()
	x.fill(a)
	for range 4 {
		x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	}
	x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, 0x77, 0)) // no such key
	x.settle(a)
	x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 60)) // beyond
	x.settle(a)
	x.pause()
	for range 3 {
		x.read(a, 1)
		x.run()
		x.read(a, 0)
	}
	x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.run()
	x.read(a, 253)
	for range 8 {
		x.run()
		x.read(a, 1)
	}
}

// barrierGoesOn: a waits for a mark, which was reached when its event ring was full. Another one
// is reached later.
func barrierGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	r := far.expose(0, 64, abi.RightWrite, a)
	x.settle()
	x.fill(a)
	a.seg.WantCell(0).StoreArmed(2)
	for range 3 {
		op := a.op(abi.OpWrite, r.Cookie, 0)
		op.Flags = 0
		x.send(a, 0, 10, shm.Sub{}, op)
	}
	x.settle(a)
	x.pause()
	x.settle(a)
	x.settle()
	x.settle()
	a.seg.WantCell(0).StoreArmed(5)
	for range 2 {
		x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
		x.settle()
	}
}

// waitingOpsGoOn: operations and messages of many kinds wait for a host that is away. One has
// been posted and not been answered.
func waitingOpsGoOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.open(a, 1, 0, far)
	r := far.expose(0, 64, abi.RightWrite|abi.RightRead, a)
	words := far.expose(64, 64, abi.RightAtomic, a)
	far.must(&ipc.SetRcvBuf{Sock: far.sock, Bytes: 4000})
	x.settle()
	copy(a.mem, "written!")
	copy(far.mem[8:], "to read!")
	x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.send(a, 0, 20, shm.Sub{}, a.args(a.op(abi.OpFetchAdd, words.Cookie, 0), shm.AtomicEntry{CompareAdd: 3}))
	x.es[0].Turn(x.net.Now(), Wall(x.net.Now()))
	x.net.Faults.Unreachable = 1e6
	x.cut()
	fence := a.op(abi.OpRead, r.Cookie, 8)
	fence.Flags |= abi.FlagFence
	fence.Off = 32
	x.send(a, 0, 30, shm.Sub{Flags: shm.SubAckNow}, fence)
	x.send(a, 0, 40, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 16), a.args(a.op(abi.OpCmpSwap, words.Cookie, 8), shm.AtomicEntry{CompareAdd: 5, Swap: 7, CompareMask: ones, SwapMask: ones}))
	silent := a.op(abi.OpWrite, r.Cookie, 24)
	silent.Flags = abi.FlagSilent
	x.send(a, 0, 0, shm.Sub{}, silent)
	a.submitRun(20, 30, 0)
	copy(a.mem[4000:], "from a buffer")
	x.send(a, 1, 13, shm.Sub{Flags: shm.SubFromBuf, Buf: a.buf, Off: 4000})
	x.send(a, 1, 50, shm.Sub{DstInc: far.cl.sock(far.sock).inc})
	x.send(a, 1, 60, shm.Sub{DstInc: 0x7777})
	theirs := a.register(abi.RightRead)
	x.send(a, 0, 70, shm.Sub{Cookie: theirs.Cookie})
	x.run()
	x.pause()
	x.settle()
	x.mend()
	x.settle()
	x.say(far, "%q, words %d and %d", far.mem[:32], binary.NativeEndian.Uint64(far.mem[64:]), binary.NativeEndian.Uint64(far.mem[72:]))
	x.open(far, 0, 0, a)
	x.send(far, 0, 5, shm.Sub{}, far.op(abi.OpRead, theirs.Cookie, 0))
}

// askGoesOn: each host has asked the other for the key of an open region and has no answer. What waits
// for a key asks again, and what was open is.
func askGoesOn(x *played) {
	a, b, far := x.side(0, 10), x.side(0, 20), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.open(far, 0, 0, b)
	theirs, ours, later := far.openRegion(0, abi.RightWrite), b.openRegion(0, abi.RightWrite), b.openRegion(64, abi.RightWrite)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	copy(a.mem[8192:], "from here")
	copy(far.mem[8192:], "from far")
	op := func(s *opSide, cookie uint64) shm.SubOp {
		o := s.op(abi.OpWrite, cookie, 0)
		o.Off = 8192
		return o
	}
	x.send(a, 0, 20, shm.Sub{}, op(a, theirs.Cookie))
	x.send(a, 0, 25, shm.Sub{})
	x.send(far, 0, 30, shm.Sub{}, op(far, ours.Cookie))
	for _, e := range x.es {
		e.Turn(x.net.Now(), Wall(x.net.Now()))
	}
	if len(x.es[0].peers.all[0].asks.of) != 1 || len(x.es[1].peers.all[0].asks.of) != 1 {
		x.t.Fatal("no question is under way")
	}
	x.pause()
	x.settle()
	x.send(far, 0, 35, shm.Sub{}, op(far, later.Cookie))
	x.send(a, 0, 40, shm.Sub{}, op(a, theirs.Cookie^0x100))
	x.settle()
	x.say(far, "%q", far.mem[:8])
	x.say(b, "%q, %q", b.mem[:8], b.mem[64:72])
}

// longGoesOn: an operation that goes in pieces is in the middle of it.
func longGoesOn(x *played) { playLong(x, 8192) }

// longEndsGoesOn: it is withdrawn, and its pieces are not done yet.
func longEndsGoesOn(x *played) { playLong(x, 5000) }

func playLong(x *played, size uint64) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	r := far.expose(0, size, abi.RightWrite, a)
	x.settle()
	for i := range a.mem {
		a.mem[i] = byte(i * i)
	}
	op := a.op(abi.OpWrite, r.Cookie, 0)
	op.Len = min(8192, size)
	x.send(a, 0, 10, shm.Sub{}, op)
	x.send(a, 0, 20, shm.Sub{})
	x.es[0].Turn(x.net.Now(), Wall(x.net.Now()))
	x.net.Faults.Unreachable = 1e6
	ResetPeers(x.es[0], hostAddr(1), nil, nil)
	if size == 5000 {
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock, Slot: 0} })
	}
	x.pause()
	x.send(a, 0, 30, shm.Sub{})
	x.settle()
	x.mend()
	x.settle()
}

// quotaGoesOn: a user has almost all operations, grants, sockets and buffers that it may have.
func quotaGoesOn(x *played) {
	a, far := x.sideAs(0, 10, 1000), x.side(1, 40)
	x.open(a, 0, 0, far)
	r := far.expose(0, 64, abi.RightWrite, a)
	ours := a.expose(0, 64, abi.RightRead, far)
	x.settle()
	x.cut()
	x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	x.run()
	x.pause()
	x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 8))
	x.send(a, 0, 10, shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 16))
	x.settle()
	for i := range uint16(2) {
		x.ask(a, &ipc.Expose{Region: ours.Region, Addr: hostAddr(1), Port: 41 + i})
		x.ask(a, &ipc.Alloc{Size: 20 << 10})
		_, err := a.call(&ipc.Bind{Addr: hostAddr(0), Port: 11 + i})
		x.say(a, "socket: %v", err)
	}
	x.mend()
	x.settle()
}

// releaseGoesOn: a region is being released, and a host that was granted it is away.
func releaseGoesOn(x *played) {
	b, far, c := x.side(0, 20), x.side(1, 40), x.side(0, 30)
	x.open(far, 0, 0, b)
	x.open(c, 0, 0, b)
	r := b.expose(0, 64, abi.RightWrite, far)
	b.must(&ipc.Expose{Region: r.Region, Addr: hostAddr(0), Port: 30})
	quiet := b.expose(64, 64, abi.RightWrite, far)
	x.settle()
	x.cut()
	x.later(b, &ipc.Release{Region: r.Region})
	b.e.keys.releaseRegion(b.e.keys.by[quiet.Region])
	x.settle()
	x.pause()
	x.later(b, &ipc.Release{Region: r.Region})
	x.send(c, 0, 20, shm.Sub{}, c.op(abi.OpWrite, r.Cookie, 0))
	x.settle()
	x.say(b, "%d regions", x.es[0].keys.all.N)
	x.mend()
	x.settle()
	x.send(far, 0, 30, shm.Sub{}, far.op(abi.OpWrite, r.Cookie, 0))
	x.settle()
	x.say(b, "%d regions", x.es[0].keys.all.N)
}

// rightsGoOn: what sockets may do with regions, here and on another host, stays what it is.
func rightsGoOn(x *played) {
	a, b, c, far := x.side(0, 10), x.side(0, 20), x.side(0, 30), x.side(1, 40)
	x.open(a, 0, 0, b)
	x.open(c, 0, 0, far)
	x.open(far, 0, 0, b)
	ro := b.expose(0, 64, abi.RightRead, a)
	wo := b.expose(64, 64, abi.RightWrite, far)
	theirs := far.expose(0, 64, abi.RightRead, c)
	other := far.expose(64, 64, abi.RightWrite, b)
	x.settle()
	x.pause()
	for _, cookie := range []uint64{ro.Cookie, wo.Cookie} {
		for _, kind := range []abi.OpKind{abi.OpRead, abi.OpWrite} {
			x.send(a, 0, 1, shm.Sub{}, a.op(kind, cookie, 8))
			x.send(far, 0, 3, shm.Sub{}, far.op(kind, cookie, 8))
			x.settle()
		}
	}
	for _, cookie := range []uint64{theirs.Cookie, other.Cookie} {
		x.send(c, 0, 5, shm.Sub{}, c.op(abi.OpRead, cookie, 8))
		x.settle()
	}
	x.later(b, &ipc.Release{Region: ro.Region})
	x.later(b, &ipc.Release{Region: wo.Region})
	x.later(far, &ipc.Release{Region: theirs.Region})
}
