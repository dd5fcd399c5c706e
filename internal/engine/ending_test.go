package engine

import (
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/chores"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
)

// choreSlack is by how much a turn may go beyond its budget: one region has as many
// grants.
const choreSlack = rdmaop.MaxGrantees + 1

// inBudget runs f and turns the engines until nothing ends any more. No turn may
// look at more of what ends than its budget, and least says how much there is in
// all, so that a test without work does not pass.
func (w *world) inBudget(least int, f func()) {
	w.t.Helper()
	e := w.es[0]
	e.chores.Renew()
	e.chores.Most, e.chores.All = 0, 0
	f()
	for turns := 0; turns < 100 || e.clients.leaving.N+e.keys.retiring.N > 0; turns++ {
		w.pass(1000, w.es...)
		if turns > 100_000 {
			w.t.Fatal("never ends")
		}
	}
	if e.chores.Most > chores.Budget+choreSlack {
		w.t.Errorf("a turn looked at %d things that end, its budget is %d", e.chores.Most, chores.Budget)
	}
	if all := e.chores.All; all < least {
		w.t.Errorf("%d things looked at, there were %d", all, least)
	}
}

// TestEndsInTurns: however much a process, a socket or a key leaves behind, no
// turn does more than its budget of it. Counted, not measured.
func TestEndsInTurns(t *testing.T) {
	t.Run("sockets", func(t *testing.T) {
		w := newWorld(t, 1, Config{})
		r := w.attach(0, smallParams())
		for port := range 60_000 {
			r.bind(uint16(port + 2))
		}
		next := w.attach(0, smallParams())
		w.inBudget(60_000, func() {
			r.at.Close()
			next.bind(60_001) // the process that comes next need not wait
			if n := w.es[0].addrs.all[0].ports.Len(); n < 50_000 {
				t.Errorf("%d ports bound: they were freed in one turn", n)
			}
		})
		w.clean(next)
	})
	t.Run("regions", func(t *testing.T) {
		const regions, each = 1500, 20
		w := newWorld(t, 2, Config{})
		a, b := w.opSide(0, 10), w.opSide(1, 20)
		a.exposeTo(a.register(abi.RightRead), 1, 20)
		w.run()
		expose := func() {
			for range regions {
				r := a.register(abi.RightRead)
				for port := range uint16(each) {
					if err := a.exposeTo(r, 1, 100+port); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		expose()
		w.run()
		expose() // the GRANTs of these wait
		w.inBudget(2*regions*(each+2), func() { a.at.Close() })
		w.run()
		if n := len(w.es[0].keys.by); n != 0 || w.es[1].peers.all[0].grants.Len() != 0 {
			t.Errorf("%d regions left, %d grants", n, w.es[1].peers.all[0].grants.Len())
		}
		w.clean2(a, b)
	})
	t.Run("destinations", func(t *testing.T) {
		const dests = 20_000
		w := newWorld(t, 1, Config{})
		p := smallParams()
		p.Slots, p.Cells, p.SubEntries, p.MaxMsgs = 1<<15, 1<<15, 1<<10, 1<<15
		r := w.attach(0, p)
		sender, other := r.bind(10), r.bind(11)
		for i := range uint32(dests) {
			r.open(sender, i, 0, hostAddr(0), uint16(1000+i))
			if i%1000 == 0 {
				w.run()
			}
		}
		w.run()
		w.inBudget(dests, func() { r.must(&ipc.CloseSock{Sock: sender}) })
		r.alive(true)
		r.must(&ipc.CloseSock{Sock: other})
		w.clean(r)
	})
	t.Run("messages", func(t *testing.T) {
		const msgs = 10_000
		w := newWorld(t, 2, Config{})
		p := smallParams()
		p.SubEntries, p.MaxMsgs = 1<<10, 1<<14
		r := w.attach(0, p)
		s := r.bind(10)
		r.open(s, 0, 0, nobody(1), 20) // they wait for a connection
		for i := range uint32(msgs) {
			r.sendMsg(s, 0, i, 10)
			if i%1000 == 0 {
				w.run()
			}
		}
		w.run()
		if n := r.cl.sock(s).txs.N; n != msgs {
			t.Fatalf("%d messages wait", n)
		}
		w.inBudget(msgs, func() { r.must(&ipc.CloseSock{Sock: s}) })
		w.clean(r)
	})
}

// TestGrantsWithdrawnByList: taking back what waits to be sent looks at the
// region's own GRANTs and at no others.
func TestGrantsWithdrawnByList(t *testing.T) {
	w := newWorld(t, 1, Config{MaxPeers: 8})
	a := w.opSide(0, 10)
	e := w.es[0]
	var list []*ipc.RegisterOK
	for range 3 {
		r := a.register(abi.RightRead)
		for port := range uint16(5) {
			p := nobody(int(port) % 2)
			a.must(&ipc.Expose{Region: r.Region, Addr: p, Port: 100 + port})
		}
		list = append(list, r)
	}
	for i, r := range list {
		if n := e.keys.by[r.Region].queued.N; n != 5 {
			t.Errorf("region %d has %d GRANTs listed", i, n)
		}
	}
	a.at.Pump = w.run
	a.must(&ipc.Release{Region: list[1].Region})
	if n := e.pools.ctls.Out; n != 10 || e.keys.by[list[0].Region].queued.N != 5 {
		t.Errorf("%d GRANTs wait, 10 are of the others", n)
	}
	a.at.Close()
	w.run()
	w.clean()
}

// TestQuotaWhileEnding: a user whose process has just died gets what that had as
// soon as it has ended, and no refusal before.
func TestQuotaWhileEnding(t *testing.T) {
	w := newWorld(t, 1, Config{})
	r := w.attach(0, smallParams())
	for port := range uint16(3000) {
		r.bind(port + 2)
	}
	next := w.attach(0, smallParams())
	next.cl.user.Quota[config.Sockets] = 3000
	r.at.Close()
	for port := range uint16(3000) {
		next.bind(port + 10_000)
	}
	w.overQuota(bindErr(next, 20_000), config.Sockets)
	w.clean(next)
}

func bindErr(r *raw, port uint16) error {
	_, err := r.call(&ipc.Bind{Addr: hostAddr(0), Port: port})
	return err
}

// TestToldBeforeFreed: a process that broke a rule is told before its memory is given back.
func TestToldBeforeFreed(t *testing.T) {
	w := newWorld(t, 1, Config{})
	r := w.attach(0, smallParams())
	var order []string
	kill, free := r.cl.onKill, r.cl.onFree
	r.cl.onKill = func(why error) { order = append(order, "told"); kill(why) }
	r.cl.onFree = func() { order = append(order, "freed"); free() }
	r.put(func(e *shm.Entry) { e.Sub().Kind = 250 })
	w.run()
	if !slices.Equal(order, []string{"told", "freed"}) {
		t.Errorf("%v", order)
	}
}
