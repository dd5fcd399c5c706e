package engine

import (
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// unread is a process that reads some of its sockets, and one that sends to it.
type unread struct {
	w        *world
	to, from *raw
	sock     uint32           // sends
	dests    map[uint16]int   // slot by port
	ids      []uint32         // free at the sender
	kept     map[uint16][]int // lengths of messages that were told, by port
	held     map[uint16][]uint32
	sent     map[uint16]int
}

func newUnread(t *testing.T, hosts int, p shm.Params) *unread {
	u := &unread{w: newWorld(t, hosts, Config{OverflowBytes: 256 << 20, HardCap: 64 << 20}), dests: map[uint16]int{},
		kept: map[uint16][]int{}, held: map[uint16][]uint32{}, sent: map[uint16]int{}}
	u.to = u.w.attach(hosts-1, p)
	fp := smallParams()
	fp.MaxMsgs, fp.SubEntries, fp.Slots = 1024, 1024, 256
	u.from = u.w.attach(0, fp)
	u.sock = u.from.bind(9)
	for i := range fp.MaxMsgs {
		u.ids = append(u.ids, i)
	}
	return u
}

// send sends k messages of n bytes to a port of the other process, as far as it
// goes, and has the engines carry them.
func (u *unread) send(port uint16, k, n int) {
	u.w.t.Helper()
	slot, ok := u.dests[port]
	if !ok {
		slot = len(u.dests)
		u.dests[port] = slot
		u.from.open(u.sock, uint32(slot), 0, u.to.e.addrs.all[0].addr, port)
	}
	for ; k > 0; k-- {
		if len(u.ids) == 0 {
			u.w.run()
			if u.back(); len(u.ids) == 0 {
				u.w.t.Fatal("no message id came back: the receiver refuses")
			}
		}
		id := u.ids[0]
		u.ids = u.ids[1:]
		u.from.sendMsg(u.sock, uint32(slot), id, n)
		u.sent[port]++
		if len(u.ids)%64 == 0 {
			u.turn()
		}
	}
	u.w.run()
	u.back()
}

func (u *unread) turn() {
	for _, e := range u.w.es {
		e.Turn(u.w.net.Now(), Wall(u.w.net.Now()))
	}
	u.back()
}

func (u *unread) back() {
	ret := u.from.seg.SendRetConsumer()
	for id, ok := ret.Take(); ok; id, ok = ret.Take() {
		u.ids = append(u.ids, id)
	}
	ret.Release()
	u.from.read()
}

// look takes events, as a process does in which some goroutine waits: each goes
// to its socket's queue, and what nobody reads keeps its memory.
func (u *unread) look() {
	ev := u.to.seg.EventConsumer()
	var e shm.Entry
	for ev.Next(&e) {
		if e.Kind() == uint8(shm.EvData) {
			d := e.Event()
			u.kept[d.DstPort] = append(u.kept[d.DstPort], int(d.Len))
			u.held[d.DstPort] = append(u.held[d.DstPort], d.RxID)
		}
	}
	u.to.took()
}

// read gives back what a socket was told of, until nothing more comes, and
// returns how many messages it has been told of in all.
func (u *unread) read(port uint16) int {
	for {
		u.w.run()
		u.look()
		if len(u.held[port]) == 0 {
			return len(u.kept[port])
		}
		ret := u.to.seg.RecvRetProducer()
		for _, id := range u.held[port] {
			ret.Put(id)
		}
		u.held[port] = nil
		ret.Publish()
		if shm.WakeNeeded(u.to.seg.DaemonAsleep()) {
			u.to.at.RingDaemon()
		}
	}
}

// TestUnreadSockets: sockets that a process does not read hold at most their
// share of its receive memory and receive ids, however much is sent to them, so
// that a socket which is read gets all of its messages meanwhile. The others get
// theirs, in order, when they are read.
func TestUnreadSockets(t *testing.T) {
	ids := smallParams()
	ids.EventEntries, ids.MaxRx = 64, 64
	arena := smallParams()
	arena.EventEntries, arena.MaxRx, arena.RecvWindows = 256, 1024, 2
	for _, k := range []struct {
		name          string
		params        shm.Params
		hogs, each, n int
	}{
		{"receive ids, one socket", ids, 1, 700, 1},
		{"receive ids, without payload", ids, 1, 700, 0},
		{"receive ids, many sockets", ids, 20, 100, 1},
		{"arena, one socket", arena, 1, 200, 60000},
		{"arena, 24 sockets", arena, 24, 10, 60000},
		{"arena, long messages", arena, 3, 6, 1 << 20},
	} {
		for hosts := 1; hosts <= 2; hosts++ {
			t.Run(fmt.Sprintf("%s/%d hosts", k.name, hosts), func(t *testing.T) {
				u := newUnread(t, hosts, k.params)
				for i := range k.hogs {
					s := u.to.bind(uint16(100 + i))
					u.to.cl.sock(s).limit = 64 << 20
				}
				u.to.bind(50)
				for i := range k.hogs {
					u.send(uint16(100+i), k.each, k.n)
					u.look()
				}
				// Nobody reads these sockets; this one gets more than fits at once.
				for round := range 10 {
					u.send(50, 30, 1000)
					if got, want := u.read(50), 30*(round+1); got != want {
						t.Fatalf("round %d: %d of %d messages for the socket that is read", round, got, want)
					}
				}
				for i := range k.hogs {
					port := uint16(100 + i)
					if got := u.read(port); got != k.each {
						t.Errorf("port %d: %d of %d messages when it was read", port, got, k.each)
					}
				}
				if n := u.to.cl.recv.InUse(); n != 0 || len(u.to.cl.rxFree) != len(u.to.cl.rx) {
					t.Errorf("%d bytes of the arena in use, %d of %d receive ids free", n, len(u.to.cl.rxFree), len(u.to.cl.rx))
				}
				for _, s := range u.to.cl.socks {
					if s.rxIDs != 0 || s.rxTold != 0 || s.rxMem != 0 || s.over.N != 0 {
						t.Errorf("port %d: %d ids, %d told, %d bytes, %d in overflow are left", s.port, s.rxIDs, s.rxTold, s.rxMem, s.over.N)
					}
				}
				u.w.clean(u.to, u.from)
			})
		}
	}
}

// gaveBack gives the memory of a message back.
func (r *raw) gaveBack(id uint32) {
	ret := r.seg.RecvRetProducer()
	ret.Put(id)
	ret.Publish()
	if shm.WakeNeeded(r.seg.DaemonAsleep()) {
		r.at.RingDaemon()
	}
}
