package sim

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

var floodScenario = &scenario{
	name: "flood",
	options: func(r *rand.Rand, o *options) {
		o.hosts, o.clients, o.sockets, o.users, o.lanes = 2, 1, 2+r.IntN(3), 0, 0
		o.params.EventEntries, o.params.MaxMsgs, o.params.SubEntries = pick[uint32](r, 8, 16), pick[uint32](r, 64, 128), 512
		o.params.Slots, o.params.MaxRx, o.sndBuf, o.rcvBuf = 64, 128, 106496, 106496
		o.maxSend, o.sendBufs, o.recvBufs, o.credits, o.hardCap, o.overflow = 8240, 64, 256, 64, 4<<20, 8<<20
		o.faults, o.hookRate, o.quotaOps, o.quotaBytes, o.forgetAfter, o.unatomic = sim.Faults{}, 0, 0, 0, 0, false
		o.faults.Break[sim.AfterWritePlaced] = pick[uint32](r, 0, 0, 2000)
		o.silence, o.settleTimeout, o.peerless, o.monitor = 30e9, 30e9, false, false
	},
	play: func(w *world) { newFlooded(w).play() },
	seen: []string{"statuses waited for room", "Barrier waited", "the mark of the flood rose", "answered in mid-turn"},
}

// TestSimFlood has sockets of a process ask for more statuses than its event ring holds, and go
// on asking. Another socket of the process does operations and waits for them in Barrier. Its
// marks follow what is locally complete within quietBound, and so does Barrier's return. The
// marks of the other sockets follow within floodBound.
func TestSimFlood(t *testing.T) { floodScenario.test(t) }

const (
	// quietBound is the virtual time from the moment an operation is locally complete to its
	// mark, and to Barrier's return. That is a few turns of daemon and process, of up to 7 µs
	// each.
	quietBound = 200_000
	// floodBound is the same for a socket whose own statuses wait. Twice as many wait as it can
	// have outstanding, and the ring takes 8 each time the process looks.
	floodBound = 2_000_000
)

// flooded is a process whose first socket is quiet while its others flood the event ring.
type flooded struct {
	*world
	quiet     *endpoint
	loud      []*endpoint
	target    *endpoint
	good, bad *region
	late      map[engine.MarkKey]lateMark
	doneAt    int64 // when the last operation of the quiet socket became locally complete
	wanted    uint64
	rises     uint64
	ends      bool
}

func newFlooded(w *world) *flooded {
	f := &flooded{world: w, late: map[engine.MarkKey]lateMark{}}
	c := w.hosts[0].clients[0]
	f.quiet, f.loud = c.eps[0], c.eps[1:]
	f.target = w.hosts[1].clients[0].eps[0]
	f.good, f.bad = f.target.register(60_000, rds.AllowRead|rds.AllowWrite), f.target.register(100, rds.AllowWrite)
	f.good.offered[f.quiet.ap] = true
	f.target.send(f.quiet.ap, 20, extra{cookie: f.good.r.Cookie(), tells: f.good})
	for _, e := range f.loud { // may write, so that a read is refused at once
		f.bad.offered[e.ap] = true
		f.target.send(e.ap, 20, extra{cookie: f.bad.r.Cookie(), tells: f.bad})
	}
	w.drain()
	return f
}

func (f *flooded) play() {
	w := f.world
	w.net.Faults = w.opt.faults
	w.onTurn = f.clock
	for _, e := range f.loud {
		f.flood(e)
	}
	for range 10 + w.rPlay.IntN(20) {
		f.pass(below(w.rPlay, 100_000))
		f.round()
	}
	f.ends = true
	if f.rises > 0 {
		w.saw("the mark of the flood rose")
	}
	if w.midTurn > 0 {
		w.saw("answered in mid-turn")
	}
}

// pass lets d nanoseconds pass.
func (f *flooded) pass(d int64) {
	end := f.now() + d
	f.net.At(end, func() {})
	for f.now() < end && f.step() {
		f.bound()
	}
}

// flood has e ask for statuses as long as the scenario lasts. Its operations are refused at
// once.
func (f *flooded) flood(e *endpoint) {
	w := f.world
	var again func()
	again = func() {
		if f.ends {
			return
		}
		for range 1 + w.rPlay.IntN(64) {
			if !f.issue(e, f.bad, abi.OpRead, true) {
				break
			}
		}
		w.net.At(w.now()+below(w.rPlay, 20_000), again)
	}
	w.net.At(w.now()+below(w.rPlay, 10_000), again)
}

func (f *flooded) issue(e *endpoint, r *region, kind abi.OpKind, notify bool) bool {
	w := f.world
	o := &op{w: w, token: uint64(len(w.ops) + 1), e: e, r: r, kind: kind, n: 8, off: r.next}
	if kind == abi.OpRead {
		o.off = 0
	}
	o.flags.Notify, o.flags.Silent = notify, true
	return e.post(r.e.ap, 0, extra{ops: []*op{o}})
}

// round issues a few operations of the quiet socket and waits for them in Barrier.
func (f *flooded) round() {
	w, q := f.world, f.quiet
	n := 1 + w.rPlay.IntN(4)
	for range n {
		if !f.issue(q, f.good, pick(w.rPlay, abi.OpRead, abi.OpWrite), w.rPlay.IntN(2) == 0) {
			f.pass(20_000) // the submission ring was full
			return
		}
	}
	cell := q.cell(f.target.ap.Addr())
	f.wanted, f.doneAt = uint64(len(cell.ops)), 0
	q.c.h.turn()
	began := w.now()
	var hwm uint64
	var err error
	q.c.blocking(func() { hwm, err = q.s.Barrier(context.Background(), cell.to, f.wanted) })
	must(err)
	w.endTurns() // the turn that woke Barrier may not have called clock yet
	if w.now() > began {
		w.saw("Barrier waited")
	}
	if hwm < f.wanted || f.doneAt == 0 || w.now()-f.doneAt > quietBound {
		broken("HWM", "Barrier for %d returned %d, %d µs after the local end at %d µs", f.wanted, hwm, (w.now()-f.doneAt)/1000, f.doneAt/1000)
	}
}

// clock checks every mark in every turn of the process's daemon.
func (f *flooded) clock(h *host) {
	if h != f.quiet.h || f.ends {
		return
	}
	w, now := f.world, f.now()
	if h.clients[0].at.Waiting() > 0 {
		w.saw("statuses waited for room")
	}
	engine.EachMark(h.e, func(k engine.MarkKey, done, shown uint64) {
		bound := int64(floodBound)
		if k.Port() == f.quiet.ap.Port() {
			bound = quietBound
			if f.doneAt == 0 && done >= f.wanted {
				f.doneAt = now
			}
		} else if shown > 0 {
			f.rises++
		}
		late, is := f.late[k]
		switch {
		case shown == done:
			delete(f.late, k)
		case !is || barrier.Reached(shown, late.id):
			f.late[k] = lateMark{done, now}
		case now-late.since > bound:
			broken("HWM", "port %d: %d was locally complete %d µs ago, the mark is %d", k.Port(), late.id, (now-late.since)/1000, shown)
		}
	})
}
