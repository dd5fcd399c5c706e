package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Scenarios of what arrives and waits.
var goesRecv = []scenario{
	{"overflow", 1, Config{}, overflowGoesOn},
	{"assembled", 2, Config{MaxSend: 8240}, assembledGoesOn},
	{"run half read", 1, Config{}, halfReadGoesOn},
	{"congestion", 2, Config{}, congestionGoesOn},
	{"refused", 1, Config{HardCap: 1}, refusedGoesOn},
	{"refused for memory", 1, Config{OverflowBytes: 64 << 10}, shortGoesOn},
	{"overrun", 1, Config{}, overrunGoesOn},
	{"closed with messages", 1, Config{}, closedGoesOn},
	{"receive share", 1, Config{}, shareGoesOn},
}

// overflowGoesOn: messages of several sockets wait for room in the event ring of b, one of them
// with a cookie, one a run, and one of a socket that is closed.
func overflowGoesOn(x *played) {
	a, b, c := x.side(0, 10), x.side(0, 20), x.side(0, 30)
	x.open(a, 0, 0, b)
	x.open(c, 0, 0, b)
	x.fill(b)
	x.send(a, 0, 100, shm.Sub{})
	x.settle(b)
	x.pass(3*ms, x.es...)
	r := a.register(abi.RightRead)
	x.send(a, 0, 50, shm.Sub{Cookie: r.Cookie})
	a.submitRun(300, 0, 200)
	x.send(c, 0, 1000, shm.Sub{})
	x.send(c, 0, 0, shm.Sub{})
	x.settle(b)
	c.must(&ipc.CloseSock{Sock: c.sock})
	x.settle(b)
	x.pause()
	x.settle()
	x.give(b)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	op := b.op(abi.OpRead, r.Cookie, 0) // the cookie has granted it
	x.open(b, 0, 0, a)
	x.send(b, 0, 5, shm.Sub{}, op)
}

// assembledGoesOn: a long message of another host waits in b's receive arena for room in its
// event ring, among others that are in overflow.
func assembledGoesOn(x *played) {
	b, far := x.side(0, 20), x.side(1, 30)
	x.open(far, 0, 0, b)
	x.settle()
	x.fill(b)
	for _, n := range []int{20, 20_000, 30_000, 30} {
		x.send(far, 0, n, shm.Sub{})
		x.settle(b)
	}
	x.pause()
	x.settle(b)
	x.read(b, 1000)
	x.settle()
	x.give(b)
	x.send(far, 0, 25_000, shm.Sub{})
}

// halfReadGoesOn: b has given back one part of a run and gives back the others later.
func halfReadGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 2000})
	x.open(a, 0, 0, b)
	x.settle()
	a.submitRun(900, 900, 900, 900)
	x.settle()
	id := b.msgs[0].RxID
	b.gaveBack(id | shm.RxStep)
	x.settle()
	x.pause()
	for range 2 {
		b.gaveBack(id | shm.RxStep)
		x.settle()
		x.show(false)
	}
	x.settle()
	x.give(b)
}

// congestionGoesOn: b is full. Senders here and on another host wait for its relief. And c waits
// for a socket there.
func congestionGoesOn(x *played) {
	a, b, c := x.side(0, 10), x.side(0, 20), x.side(0, 30)
	far, full := x.side(1, 40), x.side(1, 50)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
	full.must(&ipc.SetRcvBuf{Sock: full.sock, Bytes: 1000})
	x.open(a, 0, 0, b)
	x.open(far, 0, 0, b)
	x.open(c, 0, 0, full)
	x.settle()
	x.send(far, 0, 800, shm.Sub{})
	x.send(a, 0, 900, shm.Sub{})
	x.send(c, 0, 1200, shm.Sub{})
	x.settle(b, full)
	for _, s := range []*opSide{a, far, c} {
		s.seg.WantSlot(0).SetRelief()
	}
	x.pass(2*ms, x.es...)
	x.pause()
	x.settle(b, full)
	d := x.side(0, 60) // is told at once
	x.open(d, 0, 0, full)
	x.open(d, 1, 0, b)
	x.settle(b, full)
	x.settle()
	x.give(b)
	x.settle()
	x.give(full)
	x.settle()
}

// refusedGoesOn: b is full and refuses. Messages wait, of several sockets and of several kinds.
// They come in the order in which they were refused.
func refusedGoesOn(x *played) {
	a, b, c := x.side(0, 10), x.side(0, 20), x.side(0, 30)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
	x.open(a, 0, 0, b)
	x.open(a, 1, 0, b)
	x.open(c, 0, 0, b)
	x.settle()
	x.send(a, 0, 1500, shm.Sub{})
	x.settle(b)
	x.send(c, 0, 700, shm.Sub{})
	x.settle(b)
	a.submitRun(100, 200)
	x.send(a, 0, 300, shm.Sub{})
	x.settle(b)
	copy(a.mem[4000:], "from a buffer")
	x.send(a, 1, 13, shm.Sub{Flags: shm.SubFromBuf, Buf: a.buf, Off: 4000})
	x.send(a, 1, 400, shm.Sub{DstInc: 0x7777}) // of nobody
	x.send(a, 1, 100, shm.Sub{DstInc: b.cl.sock(b.sock).inc})
	x.settle(b)
	x.pass(5*ms, x.es...)
	x.pause()
	for range 8 {
		x.settle()
		x.give(b)
	}
	x.send(a, 1, 30, shm.Sub{})
}

// shortGoesOn: one process of a user has the overflow's memory, so another socket of that user
// refuses for want of it. It takes messages again when the first is read.
func shortGoesOn(x *played) {
	a := x.side(0, 10)
	b, c := x.sideAs(0, 20, 1000), x.sideAs(0, 30, 1000)
	x.open(a, 0, 0, b)
	x.open(a, 1, 0, c)
	x.settle()
	x.fill(b)
	x.fill(c)
	for range 8 {
		x.send(a, 0, 4000, shm.Sub{})
	}
	x.send(a, 1, 4000, shm.Sub{})
	x.settle(b, c)
	x.send(a, 1, 3000, shm.Sub{})
	x.settle(b, c)
	x.pause()
	x.settle(b, c)
	x.settle(c)
	x.give(b)
	x.settle(c)
	x.settle()
}

// overrunGoesOn: a kernel has sent more to b's second socket than there is room for, which b is
// not told yet. Its port is another socket's.
func overrunGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	gone := b.bind(21)
	b.open(gone, 0, 0, hostAddr(0), 10)
	a.open(a.sock, 0, 0, hostAddr(0), 21)
	x.settle()
	x.send(a, 0, 300, shm.Sub{})
	x.settle()
	x.fill(b)
	x.es[0].rx.overrun(b.cl.sock(gone), hostAddr(7))
	x.settle(b)
	x.pause()
	x.settle(b)
	next := a.bind(21)
	x.settle(b)
	x.settle()
	x.say(a, "bound %#x", next)
	x.ask(b, &ipc.CloseSock{Sock: gone})
	x.send(a, 0, 20, shm.Sub{})
}

// closedGoesOn: b has closed a socket and has not given back what it read there.
func closedGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	gone := b.bind(21)
	a.open(a.sock, 0, 0, hostAddr(0), 21)
	x.settle()
	x.send(a, 0, 300, shm.Sub{})
	a.submitRun(300, 400)
	x.settle()
	b.must(&ipc.CloseSock{Sock: gone})
	x.settle()
	x.pause()
	x.give(b)
	x.settle()
	x.say(b, "%d receive ids are free", len(b.cl.rxFree))
	x.say(b, "handle %#x", b.bind(21))
}

// shareGoesOn: b has receive ids and memory of two sockets. One that has much has no more than
// its share of what is left.
func shareGoesOn(x *played) {
	a, b := x.side(0, 10), x.side(0, 20)
	second := b.bind(21)
	x.open(a, 0, 0, b)
	a.open(a.sock, 1, 0, hostAddr(0), 21)
	x.settle()
	for range 30 {
		x.send(a, 0, 2000, shm.Sub{})
	}
	x.settle()
	x.pause()
	for range 20 {
		x.send(a, 0, 2000, shm.Sub{})
	}
	x.send(a, 1, 2000, shm.Sub{})
	x.settle()
	x.say(b, "socket %d: %d of %d messages are told", second, len(b.msgs), 51)
	x.give(b)
}
