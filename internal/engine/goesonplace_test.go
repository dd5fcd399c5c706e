package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Scenarios of the places of destinations.
var goesPlace = []scenario{
	{"places", 1, Config{HardCap: 1, Policy: places(1)}, placesGoOn},
	{"idle places", 1, Config{Policy: places(2)}, idleGoesOn},
	{"homeless", 2, Config{MaxPeers: 1}, homelessGoesOn},
}

// places lets users other than root have n destinations in use.
func places(n uint64) *config.Policy {
	q := config.NoQuota()
	q[config.Destinations] = n
	return &config.Policy{Quotas: config.Quotas{User: q}, Owner: 500}
}

// placesGoOn: a user may have one destination in use. Others wait for the place, and get it in
// the order in which they have asked.
func placesGoOn(x *played) {
	few, b, c := x.sideAs(0, 30, 1000), x.side(0, 20), x.side(0, 40)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 500})
	x.open(few, 0, 0, b)
	x.open(few, 1, 0, c)
	x.open(few, 2, 0, c)
	x.settle()
	x.send(few, 0, 1000, shm.Sub{})
	x.settle(b)
	x.send(few, 0, 900, shm.Sub{})
	x.settle(b)
	r := few.register(abi.RightRead)
	x.send(few, 2, 8, shm.Sub{Cookie: r.Cookie})
	x.send(few, 1, 9, shm.Sub{})
	x.settle(b)
	x.pause()
	x.settle(b)
	x.open(few, 3, 0, c) // no place for it
	x.send(few, 3, 11, shm.Sub{})
	x.settle(b)
	for range 3 {
		x.settle()
		x.give(b)
	}
	x.open(c, 0, 0, few)
	x.send(c, 0, 5, shm.Sub{}, c.op(abi.OpRead, r.Cookie, 0))
}

// idleGoesOn: of the destinations with nothing in progress, the one gives way that was not used.
func idleGoesOn(x *played) {
	few, b := x.sideAs(0, 30, 1000), x.side(0, 20)
	for slot := range uint32(3) {
		x.open(few, slot, 0, b)
	}
	x.settle()
	x.send(few, 0, 10, shm.Sub{})
	x.settle()
	x.pause()
	for _, slot := range []uint32{2, 1, 0, 2} {
		x.send(few, slot, 20, shm.Sub{})
		x.settle()
		for i, sl := range few.cl.slots[:3] {
			x.say(few, "destination %d has a place: %v", i, sl.counted)
		}
	}
}

// homelessGoesOn: there is no room for one more peer. A destination waits for it.
func homelessGoesOn(x *played) {
	a, far := x.side(0, 10), x.side(1, 40)
	x.open(a, 0, 0, far)
	x.send(a, 0, 10, shm.Sub{})
	x.settle()
	a.open(a.sock, 1, 1, nobody(1), 9)
	x.send(a, 1, 10, shm.Sub{GiveUp: 100})
	x.settle()
	x.pause()
	x.read(a, 100)
	for range 8 {
		x.pass(20*ms, x.es...)
		x.read(a, 100)
	}
}
