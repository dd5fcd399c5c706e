package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestIdleDestinationsGiveWay: a user sends to any number of destinations, over
// whatever processes, as long as no more than the quota have messages under way
// at a time; a destination is congested for a moment at most.
func TestIdleDestinationsGiveWay(t *testing.T) {
	const quota, ports = 4, 40
	for _, to := range []int{0, 1} { // this host, another
		w := quotaWorld(t, 2, func(q *config.Quota) { q[config.Destinations] = quota })
		dst, err := w.attachAs(to, smallParams(), ipc.Cred{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range ports {
			dst.bind(uint16(100 + i))
		}
		a, b := w.as(1000), w.as(1000)
		as, bs := a.bind(10), b.bind(11)
		acc, got := w.es[0].users.accounts[config.UserAccount(1000)], 0
		for round := range 3 {
			for i := range uint32(ports) {
				for _, r := range []struct {
					*raw
					sock uint32
				}{{a, as}, {b, bs}} {
					if round == 0 {
						r.open(r.sock, i, 0, hostAddr(to), uint16(100+i))
					}
					r.sendMsg(r.sock, i, i, 1)
					w.run()
					got += dst.read()
					if r.cl.table.Slot(i).LoadCongested() != 0 {
						t.Fatalf("to host %d: destination %d stays congested", to, i)
					}
					for ret, ok := r.seg.SendRetConsumer(), true; ok; {
						_, ok = ret.Take()
						ret.Release()
					}
				}
			}
		}
		if want := 3 * 2 * ports; got != want || acc.dests > quota || acc.waiting.N != 0 {
			t.Errorf("to host %d: %d of %d messages, %d destinations with a place, %d wait", to, got, want, acc.dests, acc.waiting.N)
		}
		w.clean(a, b, dst)
	}
}

// TestPlacesDrained: a burst to many more destinations than the quota, in one
// turn, gets through, and so a drain and a lingering close come to their ends.
func TestPlacesDrained(t *testing.T) {
	const quota, ports = 4, 40
	w := quotaWorld(t, 2, func(q *config.Quota) { q[config.Destinations] = quota })
	dst, err := w.attachAs(1, smallParams(), ipc.Cred{})
	if err != nil {
		t.Fatal(err)
	}
	a := w.as(1000)
	s := a.bind(10)
	for i := range uint32(ports) {
		dst.bind(uint16(100 + i))
		a.open(s, i, 0, hostAddr(1), uint16(100+i))
		a.sendMsg(s, i, i, 1)
	}
	e := w.es[0]
	e.Turn(w.net.Now(), Wall(w.net.Now()))
	waits := 0
	for _, sl := range a.cl.slots[:ports] {
		if e.watch.waitsFor(sl, sl.msgs > 0, false) == ctl.WaitsForQuota {
			waits++
		}
	}
	if waits != ports-quota {
		t.Errorf("%d destinations wait for the quota, want %d", waits, ports-quota)
	}
	stalls := map[ctl.StallInfo]*ctl.StallInfo{}
	for _, m := range a.cl.msgs {
		if m != nil {
			e.watch.stallNowhere(stalls, m)
		}
	}
	for _, s := range stalls {
		if len(stalls) != 1 || s.WaitsFor != ctl.WaitsForQuota || s.QueuedMessages != ports-quota || s.Remote != hostAddr(1) {
			t.Errorf("%d stalls, %+v", len(stalls), s)
		}
	}
	got := 0
	for range 10 {
		w.run()
		got += dst.read()
	}
	if got != ports || e.users.accounts[config.UserAccount(1000)].waiting.N != 0 {
		t.Errorf("%d of %d messages, %d destinations wait", got, ports, e.users.accounts[config.UserAccount(1000)].waiting.N)
	}
	// With nothing under way a drain makes every destination wait, those
	// without a place too, and its end relieves them.
	congested := func() (n int) {
		for i := range uint32(ports) {
			n += int(b2u(a.cl.table.Slot(i).LoadCongested() != 0))
		}
		return n
	}
	for _, on := range []bool{true, false} {
		e.drains.all = on
		for _, sl := range a.cl.slots[:ports] {
			e.dests.refresh(sl)
		}
		if n := congested(); n != ports*int(b2u(on)) {
			t.Errorf("drain %v: %d destinations are congested", on, n)
		}
	}
	w.clean(a, dst)
}

// TestUsedDestinationsStay: of destinations with nothing under way the one that
// was not used lately gives way.
func TestUsedDestinationsStay(t *testing.T) {
	const quota = 4
	w := quotaWorld(t, 1, func(q *config.Quota) { q[config.Destinations] = quota })
	a := w.as(1000)
	s := a.bind(10)
	a.bind(11)
	for i := range uint32(20) {
		a.open(s, i, 0, hostAddr(0), 11)
	}
	id := uint32(0)
	send := func(slot uint32) {
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindSend, Sock: s, Slot: slot, MsgID: id % 16} })
		id++
		w.run()
		a.read()
	}
	for i := uint32(quota); i < 20; i++ {
		send(0)
		lost := a.cl.slots[0].lead == nil
		send(i)
		if lost {
			t.Errorf("the destination in use lost its place to %d", i-1)
		}
	}
	w.clean(a)
}

// TestPlaceLeftInTurn: a destination that gives way when what waited there was
// just withdrawn sends in order again when it has a place, to a host that was not
// reached before.
func TestPlaceLeftInTurn(t *testing.T) {
	w := quotaWorld(t, 2, func(q *config.Quota) { q[config.Destinations] = 1 })
	w.es[1].Shutdown()
	a := w.as(1000)
	s := a.bind(10)
	a.open(s, 0, 0, hostAddr(1), 20)
	a.open(s, 1, 1, hostAddr(0), 10)
	a.sendMsg(s, 0, 0, 8)
	a.sendMsg(s, 0, 1, 8) // waits to hear of the first one
	e := w.es[0]
	for n := 0; len(e.peers.all) == 0 || e.peers.all[0].c.Info().RetryAt == 0; n++ {
		if w.pass(ms, e); n == 10_000 {
			t.Fatal("the attempt does not fail")
		}
	}
	a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: s, Slot: 0} })
	a.sendMsg(s, 1, 2, 8)
	e.Turn(w.net.Now(), Wall(w.net.Now()))
	if len(e.peers.all) != 0 || a.cl.slots[0].lead != nil {
		t.Fatalf("%d peers, the destination keeps its place: %v", len(e.peers.all), a.cl.slots[0].lead != nil)
	}
	w.es[1] = w.boot(1, 99, Config{})
	dst, err := w.attachAs(1, smallParams(), ipc.Cred{})
	if err != nil {
		t.Fatal(err)
	}
	dst.bind(20)
	a.sendMsg(s, 0, 3, 8)
	a.sendMsg(s, 0, 4, 8)
	got := 0
	for range 10 {
		w.run()
		got += dst.read()
	}
	if got != 2 {
		t.Errorf("%d of 2 messages arrived", got)
	}
	w.clean(a, dst)
}
