package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestPark: clients with nothing to say are not looked at, and are heard when
// they ring.
func TestPark(t *testing.T) {
	w := newWorld(t, 1, Config{})
	e := w.es[0]
	var rs []*raw
	for i := range 20 {
		r := w.attach(0, smallParams())
		s := r.bind(uint16(100 + i))
		r.open(s, 0, 0, hostAddr(0), uint16(100+(i+1)%20))
		rs = append(rs, r)
	}
	now := int64(1)
	turn := func(n int) {
		for range n {
			now++
			e.Turn(now, Wall(now))
		}
	}
	turn(parkAfter + 10)
	if e.clients.active.N != 0 || !e.Parked() || rs[0].seg.DaemonAsleep().Load() != 1 {
		t.Fatalf("%d clients active", e.clients.active.N)
	}
	rs[3].sendMsg(0, 0, 0, 10)
	turn(2)
	if e.clients.active.N != 2 || rs[3].seg.DaemonAsleep().Load() != 0 || rs[4].seg.DaemonAsleep().Load() != 0 {
		t.Errorf("%d clients active, want the one that rang and the one that will answer", e.clients.active.N)
	}
	var ev shm.Entry
	if !rs[4].seg.EventConsumer().Next(&ev) {
		t.Fatal("the message did not arrive")
	}
	// What is given back by a parked client is heard, too.
	turn(parkAfter + 10)
	ret := rs[4].seg.RecvRetProducer()
	ret.Put(ev.Event().RxID)
	ret.Publish()
	if !shm.WakeNeeded(rs[4].seg.DaemonAsleep()) {
		t.Fatal("no ring needed from a parked client")
	}
	rs[4].at.RingDaemon()
	turn(2)
	if rs[4].cl.rx[ev.Event().RxID].sock != nil {
		t.Error("the receive id did not come back")
	}
	// A client that submits between the announcement and the look stays.
	c := rs[5].cl
	e.Unpark(c)
	*rs[5].seg.SubProducer().Reserve() = shm.Entry{}
	rs[5].seg.SubProducer().Publish()
	if e.clients.park(c) || !c.inActive.On() || rs[5].seg.DaemonAsleep().Load() != 0 {
		t.Error("parked with something in its ring")
	}
	w.clean(rs...)
}

// TestReturnsWakeWhoWants: a client that sleeps for events alone is not rung for
// the ids of its messages, and is for an event.
func TestReturnsWakeWhoWants(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.attach(0, smallParams()), w.attach(0, smallParams())
	as, bs := a.bind(100), b.bind(101)
	a.open(as, 0, 0, hostAddr(0), 101)
	b.open(bs, 0, 0, hostAddr(0), 100)
	asleep := a.seg.ClientAsleep()
	now := int64(1)
	for id, c := range []struct {
		name     string
		from     *raw
		announce uint32
		rings    bool
	}{
		{"returned, awake", a, shm.Awake, false},
		{"returned, asleep", a, shm.Asleep, true},
		{"returned, asleep for events", a, shm.AsleepForEvents, false},
		{"delivered, asleep for events", b, shm.AsleepForEvents, true},
	} {
		asleep.Store(c.announce)
		c.from.sendMsg(0, 0, uint32(id), 10)
		for range 3 {
			now++
			w.es[0].Turn(now, Wall(now))
		}
		if rang := asleep.Load() != c.announce; rang != c.rings {
			t.Errorf("%s: rang %v", c.name, rang)
		}
		if c.from.cl.msgs[id] != nil {
			t.Errorf("%s: the id did not come back", c.name)
		}
	}
	w.clean(a, b)
}

// TestRingForRoom: a client whose event ring is full is parked like any other,
// costs the turns nothing, and rings when it has read half of the ring. What
// waited is written then.
func TestRingForRoom(t *testing.T) {
	w := newWorld(t, 1, Config{})
	e := w.es[0]
	a := w.attach(0, smallParams())
	s := a.bind(10)
	a.open(s, 0, 0, hostAddr(0), 11)
	now := int64(1)
	turn := func(n int) (work int) {
		for range n {
			now++
			if e.Turn(now, Wall(now)) {
				work++
			}
		}
		return work
	}
	turn(2)
	for a.cl.ev.Reserve() != nil { // full
	}
	a.cl.ev.Publish()
	sl := a.cl.slots[0]
	sl.down = 1
	e.clients.note(sl)
	if turn(2); !a.cl.waits() || !a.cl.noRoom {
		t.Fatal("nothing waits with a full ring")
	}
	if turn(parkAfter + 10); e.clients.active.N != 0 || a.seg.DaemonAsleep().Load() != shm.AsleepForRoom {
		t.Fatalf("%d clients active, the daemon's sleep is announced as %d", e.clients.active.N, a.seg.DaemonAsleep().Load())
	}
	if n := turn(100); n != 0 {
		t.Errorf("%d of 100 turns found work while nobody read", n)
	}
	c := a.seg.EventConsumer()
	var x shm.Entry
	half := int(a.cl.params.EventEntries) / 2
	for range half - 1 {
		c.Next(&x)
	}
	if a.took(); turn(100) != 0 {
		t.Error("the daemon was rung before half of the ring was read")
	}
	c.Next(&x)
	if a.took(); turn(3) == 0 {
		t.Fatal("the daemon was not rung when half of the ring had been read")
	}
	for range half {
		c.Next(&x)
	}
	if !c.Next(&x) || x.Kind() != uint8(shm.EvNotice) {
		t.Errorf("the notice was lost: event %d", x.Kind())
	}
	a.took()

	// A client that reads between the announcement and the look stays active.
	for a.cl.ev.Reserve() != nil {
	}
	a.cl.ev.Publish()
	sl.down = 1
	e.clients.note(sl)
	turn(2)
	for c.Next(&x) {
	}
	c.Release()
	if e.clients.park(a.cl) || !a.cl.inActive.On() {
		t.Error("parked with room for what waits")
	}
	w.clean(a)
}
