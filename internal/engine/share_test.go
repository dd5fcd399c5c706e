package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
)

// shareWorld has one host with 16 MiB for unread messages, whose sockets have
// no bound of their own.
func shareWorld(t *testing.T) *world {
	return newWorld(t, 1, Config{OverflowBytes: 16 << 20, HardCap: 1 << 30,
		Policy: &config.Policy{Quotas: config.Quotas{User: config.NoQuota()}, Owner: 500}})
}

// reader is a socket that reads when told to.
type reader struct {
	*raw
	sock uint32
	port uint16
}

func (w *world) reader(uid uint32, port uint16) *reader {
	r := &reader{raw: w.as(uid), port: port}
	r.sock = r.bind(port)
	return r
}

func (r *reader) socket() *socket { return r.cl.socks[r.sock] }

// writer sends as fast as its message ids allow.
type writer struct {
	*raw
	sock uint32
	n    map[uint32]int // sent, by slot
}

func (w *world) writer(port uint16, to ...*reader) *writer {
	x := &writer{raw: w.as(0), n: map[uint32]int{}}
	x.sock = x.bind(port)
	for i, r := range to {
		x.open(x.sock, uint32(i), 0, hostAddr(0), r.port)
	}
	return x
}

// send sends up to n messages to a slot and reports how many: what is refused
// waits, and keeps its id.
func (x *writer) send(slot uint32, n, size int) (sent int) {
	for range n {
		id := uint32(0)
		for ; id < 200 && x.cl.msgs[id] != nil; id++ {
		}
		if id == 200 {
			return sent
		}
		x.sendMsg(x.sock, slot, id, size)
		x.w.run()
		ret := x.seg.SendRetConsumer()
		for _, ok := ret.Take(); ok; _, ok = ret.Take() {
		}
		ret.Release()
		sent++
		x.n[slot]++
	}
	return sent
}

// TestShareOfMemory: a user whose processes read nothing has its messages
// refused at half of the memory, and no message for another user is refused.
func TestShareOfMemory(t *testing.T) {
	for name, size := range map[string]int{"large": 300_000, "small": 1000} {
		t.Run(name, func(t *testing.T) {
			w := shareWorld(t)
			e := w.es[0]
			hostile, second, good := w.reader(1000, 10), w.reader(1000, 11), w.reader(1001, 12)
			x := w.writer(20, hostile, second, good)
			for i := 0; !hostile.socket().forMemory.On(); i++ {
				if x.send(0, 1, size) == 0 || i > 100_000 {
					t.Fatal("is never refused")
				}
			}
			if a := e.users.accounts[config.UserAccount(1000)]; a.overBytes > e.cfg.OverflowBytes/2+size || a.overBytes < e.cfg.OverflowBytes/4 {
				t.Errorf("refused with %d bytes held of %d", a.overBytes, e.cfg.OverflowBytes)
			}
			// Its user's other sockets share its fate.
			if x.send(1, 30, 300_000); !second.socket().forMemory.On() {
				t.Error("another socket of the user is not refused")
			}
			// Others do not: 3 MiB that wait for a reader, and those come.
			refused := e.watch.counts.sum.RecvRefused
			for range 5 {
				if n := x.send(2, 30, 100_000); n != 30 {
					t.Fatalf("%d sent to the other user", n)
				}
				for got := 0; got < 30; w.run() {
					got += good.read()
				}
			}
			if n := e.watch.counts.sum.RecvRefused - refused; n != 0 {
				t.Errorf("%d messages to another user were refused", n)
			}
			// It reads after all: everything comes.
			total := 0
			for n := 0; total < x.n[0]+x.n[1]; n++ {
				total += hostile.read() + second.read()
				w.run()
				if n == 10_000 {
					t.Fatalf("%d of %d messages arrived in the end", total, x.n[0]+x.n[1])
				}
			}
			w.clean(hostile.raw, second.raw, good.raw, x.raw)
		})
	}
}

// TestShareInPieces: what a user holds in pieces all over its memory keeps no
// long message for another user out.
func TestShareInPieces(t *testing.T) {
	w := shareWorld(t)
	e := w.es[0]
	pins, drain, good := w.reader(1000, 10), w.reader(1000, 11), w.reader(1001, 12)
	x := w.writer(20, pins, drain, good)
	for !pins.socket().forMemory.On() && !drain.socket().forMemory.On() {
		if x.send(0, 1, 100)+x.send(1, 1, 200_000) == 0 {
			t.Fatal("is never refused")
		}
	}
	x.must(&ipc.CloseSock{Sock: x.sock})
	drain.must(&ipc.CloseSock{Sock: drain.sock})
	w.run()
	y := w.writer(21, good)
	y.send(0, 16, 1) // its own receive ids
	for range 3 {
		y.send(0, 1, 1<<20)
	}
	if good.socket().forMemory.On() || e.watch.counts.sum.RecvRefused == 0 {
		t.Errorf("refused a long message with %d of %d bytes in use", e.rx.overflow.used, e.cfg.OverflowBytes)
	}
	w.clean(pins.raw, drain.raw, good.raw, x.raw, y.raw)
}

// TestManyUsersShare: however many users read nothing, the next one gets
// something.
func TestManyUsersShare(t *testing.T) {
	w := shareWorld(t)
	var all []*raw
	for i := range uint32(3) {
		r := w.reader(1000+i, uint16(10+i))
		x := w.writer(uint16(100+i), r)
		for !r.socket().forMemory.On() {
			if x.send(0, 1, 100_000) == 0 {
				t.Fatal("is never refused")
			}
		}
		if held := w.es[0].users.accounts[config.UserAccount(1000+i)].overBytes; held < 500_000 {
			t.Errorf("user %d got %d bytes", i, held)
		}
		all = append(all, r.raw, x.raw)
	}
	w.clean(all...)
}
