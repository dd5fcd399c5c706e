package engine

import (
	"net/netip"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// Scenarios of sockets, destinations, and what waits to be told.
var goesSend = []scenario{
	{"handles", 1, Config{}, handlesGoOn},
	{"buffers", 1, Config{HardCap: 1}, buffersGoOn},
	{"lanes", 2, Config{}, lanesGoOn},
	{"limits", 2, Config{HardCap: 1}, limitsGoOn},
	{"who is met", 1, Config{}, metGoesOn},
	{"anybody", 2, Config{HardCap: 1}, anybodyGoesOn},
	{"who was met and is gone", 1, Config{}, goneGoesOn},
	{"who is gone and nobody knows", 1, Config{}, untoldGoesOn},
	{"who is gone and nobody can know", 2, Config{}, unknownGoesOn},
	{"notices", 2, Config{}, noticesGoOn},
	{"folded notices", 1, Config{}, foldedGoesOn},
	{"crowded", 1, Config{}, crowdedGoesOn},
	{"cancelled", 1, Config{HardCap: 1}, cancelledGoesOn},
	{"drained", 2, Config{}, drainedGoesOn},
	{"rings", 1, Config{}, ringsGoOn},
	{"destinations closed", 2, Config{}, closedDestsGoOn},
}

// handlesGoOn: numbers of sockets, buffers and regions that were used are not used again.
func handlesGoOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	for range 2 {
		a.must(&ipc.CloseSock{Sock: a.bind(11)})
	}
	old := a.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	a.must(&ipc.Free{Buffer: old})
	r := a.register(abi.RightRead)
	a.at.Pump = func() { x.run() }
	a.must(&ipc.Release{Region: r.Region})
	x.open(b, 0, 0, a)
	x.send(b, 0, 10, shm.Sub{})
	x.settle()
	x.pause()
	x.say(a, "handle %#x", a.bind(11))
	x.ask(a, &ipc.Alloc{Size: 4096})
	g := a.register(abi.RightRead)
	x.say(a, "region number %d", x.es[0].keys.by[g.Region].number)
	x.ask(a, &ipc.CloseSock{Sock: b.sock + 1<<20})
	x.ask(a, &ipc.Bind{Addr: hostAddr(0), Port: 20})
}

// buffersGoOn: a has freed a buffer, of which a message waits at b, and waits for the end of it.
func buffersGoOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	x.open(a, 0, 0, b)
	x.settle()
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 500})
	x.send(a, 0, 1000, shm.Sub{})
	old := a.must(&ipc.Alloc{Size: 8192}).(*ipc.AllocOK).Buffer
	quiet := a.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	x.send(a, 0, 300, shm.Sub{Flags: shm.SubFromBuf, Buf: old})
	x.send(a, 0, 200, shm.Sub{Flags: shm.SubFromBuf, Buf: quiet, Off: 7})
	x.settle(b)
	x.later(a, &ipc.Free{Buffer: old, Wait: 1})
	a.e.keys.freeBuffer(a.cl.buffers[quiet], nil)
	x.settle(b)
	x.pause()
	x.ask(a, &ipc.Register{Sock: a.sock, Buffer: quiet, Len: 64, Access: abi.RightRead})
	x.later(a, &ipc.Free{Buffer: quiet, Wait: 1})
	x.settle(b)
	x.settle()
	x.give(b)
	x.settle()
	x.say(a, "%d buffers, %d bytes", len(a.cl.buffers), x.es[0].st.C[stats.RegisteredBytes])
}

// lanesGoOn: a socket stays in its lane, and so do its messages.
func lanesGoOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	first := a.bind(11)
	plain := a.bind(12)
	a.openLane(first, 1, hostAddr(1), 40, 2)
	a.openLane(plain, 2, hostAddr(1), 40, 0)
	x.open(far, 0, 0, a)
	x.settle()
	for slot, sock := range map[uint32]uint32{1: first} {
		a.sendMsg(sock, slot, 200, 10)
	}
	x.settle()
	x.pause()
	a.openLane(first, 3, hostAddr(1), 41, 2)
	a.sendMsg(first, 1, 201, 20)
	x.settle()
	a.openLane(plain, 4, hostAddr(1), 41, 5) // ends the process: the socket is in lane 0
	x.settle()
}

// limitsGoOn: messages with a limit wait, here and for a host that is not reached. Time stands
// still with the engine.
func limitsGoOn(x *played) {
	a, b, far := x.side(0, 10), x.side(0, 20), x.side(1, 40)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 500})
	x.open(a, 0, 0, b)
	x.open(a, 1, 1, far)
	x.send(a, 1, 10, shm.Sub{})
	x.send(a, 0, 1000, shm.Sub{})
	x.settle(b)
	r := far.expose(0, 64, abi.RightWrite, a)
	x.settle(b)
	x.cut()
	x.send(a, 0, 300, shm.Sub{GiveUp: 120})
	x.send(a, 0, 200, shm.Sub{GiveUp: 4000})
	x.send(a, 1, 300, shm.Sub{GiveUp: 150})
	x.send(a, 1, 0, shm.Sub{GiveUp: 150}, a.op(abi.OpWrite, r.Cookie, 0))
	x.settle(b)
	x.pause()
	for range 14 {
		x.pass(15*ms, x.es...)
		x.read(a, 1000)
	}
	x.mend()
	x.settle()
}

// metGoesOn: a destination leads to the socket that it has met, and not to the port's next one.
func metGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	x.open(a, 0, 0, b)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	x.pause()
	b.must(&ipc.CloseSock{Sock: b.sock})
	b.bind(20)
	x.send(a, 0, 20, shm.Sub{})
	x.send(a, 0, 30, shm.Sub{})
	x.settle()
	x.send(a, 0, 40, shm.Sub{})
	x.settle()
}

// anybodyGoesOn: destinations that meet nobody, here and at another host, with messages that wait.
func anybodyGoesOn(x *played) {
	a, b, far := x.side(0, 10), x.side(0, 20), x.side(1, 40)
	a.openAnybody(a.sock, 0, 0, hostAddr(0), b.port)
	a.openAnybody(a.sock, 1, 1, hostAddr(1), far.port)
	for slot, s := range []*opSide{b, far} {
		s.must(&ipc.SetRcvBuf{Sock: s.sock, Bytes: 500})
		x.send(a, uint32(slot), 10, shm.Sub{})
		x.send(a, uint32(slot), 1000, shm.Sub{})
		x.send(a, uint32(slot), 300, shm.Sub{})
	}
	x.settle(b, far)
	x.pause()
	for _, s := range []*opSide{b, far} {
		s.must(&ipc.CloseSock{Sock: s.sock})
		s.sock = s.bind(s.port)
	}
	x.settle()
	for slot, s := range []*opSide{b, far} {
		x.send(a, uint32(slot), 20, shm.Sub{})
		s.must(&ipc.CloseSock{Sock: s.sock})
		x.send(a, uint32(slot), 30, shm.Sub{})
		s.sock = s.bind(s.port)
		x.settle()
		x.send(a, uint32(slot), 40, shm.Sub{})
	}
	x.settle()
}

// goneGoesOn: a knows that the socket that it had met is gone. What it sends from then on goes to
// the next one.
func goneGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	x.open(a, 0, 0, b)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	b.must(&ipc.CloseSock{Sock: b.sock})
	b.bind(20)
	x.send(a, 0, 20, shm.Sub{})
	x.settle()
	x.pause()
	x.send(a, 0, 30, shm.Sub{})
	x.settle()
}

// untoldGoesOn: a does not know it, because its event ring is full.
func untoldGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	x.open(a, 0, 0, b)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	x.fill(a)
	b.must(&ipc.CloseSock{Sock: b.sock})
	b.bind(20)
	x.send(a, 0, 20, shm.Sub{})
	x.settle(a)
	x.pause()
	x.send(a, 0, 30, shm.Sub{})
	x.settle(a)
	x.settle()
	x.send(a, 0, 40, shm.Sub{})
	x.settle()
}

// unknownGoesOn: a learns that a socket of another host is gone when the engine takes in nothing
// any more. What a had submitted by then was for that socket.
func unknownGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.open(a, 1, 0, far)
	r := far.expose(0, 64, abi.RightRead, a)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	far.must(&ipc.CloseSock{Sock: far.sock})
	far.bind(40)
	x.settle()
	x.send(a, 0, 20, shm.Sub{})
	op := a.op(abi.OpRead, r.Cookie, 0)
	x.send(a, 1, 0, shm.Sub{}, op)
	x.es[0].Turn(x.net.Now(), Wall(x.net.Now()))
	x.es[0].Halt()
	x.send(a, 0, 30, shm.Sub{})
	x.pause()
	x.settle()
	x.send(a, 0, 40, shm.Sub{})
	x.settle()
}

// noticesGoOn: a's event ring is full, and notices of all kinds wait for it.
func noticesGoOn(x *played) {
	a, b, far := x.side(0, 10), x.side(0, 20), x.side(1, 40)
	x.open(a, 0, 0, b)
	x.open(a, 1, 1, far)
	x.open(a, 2, 2, b)
	a.open(a.sock, 3, 2, hostAddr(0), 77)
	a.open(a.sock, 4, 3, nobody(1), 9)
	x.send(a, 1, 10, shm.Sub{})
	x.settle()
	x.fill(a)
	x.send(a, 3, 10, shm.Sub{})
	x.send(a, 3, 10, shm.Sub{})
	x.send(a, 4, 10, shm.Sub{GiveUp: 1})
	for range 2 {
		ResetPeers(x.es[1], hostAddr(0), nil, nil)
		x.settle(a)
		x.world.run()
	}
	x.world.run()
	sl := a.cl.slots[1]
	sl.lost, sl.ungranted, sl.up = 3, 2, 2
	x.es[0].clients.note(sl)
	a.seg.WantSlot(2).SetRelief()
	a.seg.WantSlot(1).SetCrowded()
	a.cl.slots[2].relief, a.cl.slots[1].crowded = true, true
	x.es[0].clients.note(a.cl.slots[2])
	x.settle(a)
	x.pause()
	x.read(a, 255)
	x.run()
	x.settle()
}

// foldedGoesOn: a has closed a destination with news, of which it is told without an address.
func foldedGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	x.open(a, 0, 0, b)
	x.open(a, 1, 0, b)
	x.settle()
	x.fill(a)
	sl := a.cl.slots[1]
	closed := &slot{sock: sl.sock, cell: sl.cell, addr: sl.addr, port: 9, closed: true, told: told{lost: 2, nosock: 3, gaveUp: 4, ungranted: 5}}
	x.es[0].clients.foldNotices(closed)
	x.settle(a)
	x.pause()
	x.es[0].clients.foldNotices(&slot{sock: a.cl.slots[1].sock, cell: a.cl.slots[1].cell, closed: true, told: told{lost: 1}})
	x.settle(a)
	x.settle()
}

// crowdedGoesOn: a has closed a destination with a message and a notice.
func crowdedGoesOn(x *played) {
	a := x.side(0, 10)
	a.open(a.sock, 0, 0, hostAddr(0), 77)
	a.open(a.sock, 1, 0, hostAddr(0), 78)
	x.settle()
	x.fill(a)
	x.send(a, 0, 10, shm.Sub{})
	x.settle(a)
	a.put(func(e *shm.Entry) { *e.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: a.sock, Slot: 0} })
	x.settle(a)
	x.pause()
	x.settle(a)
	x.settle()
}

// cancelledGoesOn: messages that wait are withdrawn after the pause, and those after that are not.
// Their ids are not in the order of their submission.
func cancelledGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 500})
	x.open(a, 0, 0, b)
	x.open(a, 1, 0, b)
	x.settle()
	x.send(a, 1, 600, shm.Sub{})
	for _, id := range []uint32{9, 7, 8, 5} {
		a.nextID = id
		x.send(a, 0, 600+int(id), shm.Sub{})
	}
	for _, id := range []uint32{19, 17, 18, 15} {
		a.nextID = id
		x.send(a, 1, 600+int(id), shm.Sub{})
	}
	a.nextID = 20
	x.settle(b)
	x.pause()
	x.pause()
	a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock, Slot: 0} })
	x.send(a, 0, 70, shm.Sub{})
	x.settle(b)
	for range 5 {
		x.settle()
		x.give(b)
	}
}

// drainedGoesOn: operators have drained an address.
func drainedGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	x.es[0].drains.setDrain(hostAddr(1), true)
	x.es[0].drains.setDrain(netip.MustParseAddr("10.9.9.9"), true)
	x.settle()
	x.pause()
	x.open(a, 1, 0, far)
	x.settle()
	x.es[0].drains.setDrain(hostAddr(1), false)
	x.es[0].drains.all = true
	x.settle()
	x.pause()
	x.es[0].drains.all = false
}

// ringsGoOn: processes have submitted, read and given back more than the engine has looked at.
func ringsGoOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	x.open(a, 0, 0, b)
	x.settle()
	for range 5 {
		x.send(a, 0, 100, shm.Sub{})
	}
	x.settle()
	x.still(0)
	x.send(a, 0, 200, shm.Sub{})
	x.give(b)
	x.es[0].Resume()
	x.settle()
	x.fill(a)
	x.read(a, 3)
	x.still(0)
	x.send(a, 0, 250, shm.Sub{})
	x.pause()
	x.send(a, 0, 300, shm.Sub{})
	x.settle()
	x.open(b, 0, 0, a)
	x.send(b, 0, 10, shm.Sub{})
	x.settle()
}

// closedDestsGoOn: a has closed a destination of another host with messages on their way.
func closedDestsGoOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.open(a, 1, 0, far)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	x.cut()
	x.send(a, 0, 20, shm.Sub{})
	x.send(a, 0, 30, shm.Sub{})
	x.run()
	a.put(func(e *shm.Entry) { *e.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: a.sock, Slot: 0} })
	x.run()
	x.pause()
	x.open(a, 0, 0, far)
	x.send(a, 0, 40, shm.Sub{})
	x.run()
	x.mend()
	x.settle()
}
