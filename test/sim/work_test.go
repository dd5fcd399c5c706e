package sim

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/verbs/sim"
)

// Every run does at least wantMessages, wantOps and wantBreaks, in at most maxActs actions.
const (
	wantMessages = 2000
	wantOps      = 200
	wantBreaks   = 10
	maxActs      = 60_000
	enoughBreaks = 60 // afterwards no daemon and no process dies, so that the rest gets done
)

// run runs the whole workload.
func (w *world) run() {
	w.net.Faults = w.opt.faults
	if w.opt.hookRate > 0 {
		w.net.Hook = w.hook
	}
	w.net.At(w.now(), w.act)
	for !w.over {
		if !w.step() {
			broken("harness", "the workload stopped")
		}
		w.bound()
	}
}

// hook crashes hosts at random points of the provider.
func (w *world) hook(p sim.Point) sim.Action {
	if below(w.rHook, 1e6) >= int64(w.opt.hookRate) || w.breaks > enoughBreaks {
		return sim.Pass
	}
	return pick(w.rHook, sim.CrashRequester, sim.CrashResponder)
}

// act does one action of the workload and schedules the next.
func (w *world) act() {
	if w.over {
		return
	}
	if w.depth == 0 {
		w.acts++
		if w.acts > maxActs {
			broken("liveness", "%d messages, %d operations, %d breaks in %d actions", len(w.msgs), len(w.ops), w.breaks, w.acts)
		}
		w.doOne()
	}
	if w.depth == 0 && len(w.msgs) >= wantMessages && len(w.ops) >= wantOps && w.breaks >= wantBreaks {
		w.over = true
		return
	}
	gap := below(w.rWork, w.opt.gap)
	if w.rWork.IntN(100) == 0 {
		gap += below(w.rWork, 5_000_000)
	}
	if n := len(w.msgs); n != w.sent {
		w.sent, w.idle = n, 0
	} else if w.idle++; w.idle > 20 { // the load waits for something
		gap += below(w.rWork, 20_000_000)
	}
	w.net.At(w.now()+gap, w.act)
}

func (w *world) doOne() {
	if len(w.eps) == 0 {
		return // every host is down
	}
	if w.disturb() {
		return
	}
	e := pick(w.rWork, w.eps...)
	if e.c.deaf > w.now() {
		return
	}
	if w.opt.barrier > 0 && w.rMeet.IntN(1000) < w.opt.barrier {
		e.barrier()
		return
	}
	if e.c.full {
		if e.h.drained {
			return
		} // the process never gives memory back, so another one takes its place
		e.c.another()
		return
	}
	x := w.rWork.IntN(100)
	if len(w.msgs) > 4*wantMessages {
		x /= 3 // only operations are missing
	}
	switch {
	case x < 5 || x >= 100-w.opt.offers:
		e.offer()
	case x < 7:
		e.releaseOne()
	case x < 7+w.opt.opShare:
		e.operate()
	default:
		e.burst()
	}
}

// disturb draws something that breaks something. It returns false if it drew nothing.
func (w *world) disturb() bool {
	o := &w.opt
	x := w.rFault.IntN(1000)
	// If the load is done and too little has broken, something has to break now.
	if len(w.msgs) >= wantMessages && len(w.ops) >= wantOps && x < 20 {
		x = 0
		if o.reset == 0 {
			x = w.rFault.IntN(max(o.crash+o.kill+o.rebind, 1))
		}
	}
	took := func(share int) bool {
		if x < share {
			x = 1 << 20
			return true
		}
		x -= share
		return false
	}
	e := pick(w.rFault, w.eps...)
	switch {
	case took(o.reset):
		to := pick(w.rFault, w.hosts...)
		if o.lanes > 0 && w.rFault.IntN(2) == 0 {
			lane := pick(w.rFault, o.laneV[:o.lanes]...)
			w.log(e.h, "resetlane", int64(to.n), int64(lane), 0)
			engine.ResetPeers(e.h.e, to.addr, &lane, nil)
		} else {
			w.log(e.h, "reset", int64(to.n), 0, 0)
			engine.ResetPeers(e.h.e, to.addr, nil, nil)
		}
		e.h.kick()
	case took(o.crash) && w.breaks <= enoughBreaks && !e.h.kernel():
		e.h.crash()
	case took(o.kill) && w.breaks <= enoughBreaks && !e.h.drained:
		e.c.another()
	case took(o.rebind) && !e.h.drained:
		w.rebind(e)
	case took(o.stall):
		if w.rFault.IntN(4) == 0 {
			must(e.s.SetRcvBuf(pick(w.rFault, 1, 3000, 200_000)))
			break
		}
		e.stalled = w.now() + below(w.rFault, pick[int64](w.rFault, 100_000, 5_000_000, 100_000_000))
		w.log(e.h, "stall", int64(e.ap.Port()), e.stalled-w.now(), 0)
		c := e.c
		w.net.At(e.stalled, func() { c.wake() })
	case took(o.hole):
		w.swallow(e.h.addr, pick(w.rFault, w.hosts...).addr)
	case took(o.halt):
		if o.slice > 0 {
			e.h.copies()
		}
		if e.h.presses(); e.h.up {
			e.h.halt()
		}
		w.meet()
	case took(o.deaf):
		e.deafFor(below(w.rMeet, pick[int64](w.rMeet, 100_000, 5_000_000, 40_000_000)))
	case took(o.drain):
		e.h.drain()
	case took(o.cancel):
		if len(w.flowsV) == 0 {
			break
		}
		if f := pick(w.rFault, w.flowsV...); f.src.open {
			w.cancel(f)
		}
	default:
		return false
	}
	return true
}

// rebind closes a socket, and waits for its acknowledgements first if it draws so. Then it binds
// another socket.
func (w *world) rebind(e *endpoint) {
	w.breaks++
	port, c := e.ap.Port(), e.c
	// A socket does not read while it waits, so it must not wait for messages to itself.
	if w.rFault.IntN(100) < w.opt.linger && w.flows[flowKey{e.id, e.ap}] == nil {
		e.closeWait()
	} else {
		e.close()
	}
	if w.opt.successor && len(c.h.clients) > 1 { // another process takes the port
		c = c.h.clients[(slices.Index(c.h.clients, c)+1)%len(c.h.clients)]
	}
	if c.gone || !c.h.up {
		return
	}
	if i := w.ports[netip.AddrPortFrom(c.h.addr, port)]; w.rFault.IntN(3) > 0 && i.bound == nil {
		c.bind(port)
	} else {
		c.bind(0)
	}
}

func (w *world) cancel(f *flow) {
	if f.src.h.presses(); !f.src.open {
		return
	}
	w.log(f.src.h, "cancel", int64(f.src.ap.Port()), int64(f.dst.Port()), 0)
	f.cancelled = true
	for _, m := range f.msgs {
		for _, o := range m.ops {
			o.cancelled = true
		}
	}
	f.src.h.cancels = true
	w.meet()
	f.src.h.cancels = false
	must(f.src.s.CancelSentTo(f.dst))
	f.src.h.kick()
}

// size draws the size of a payload.
func (w *world) size() int {
	r := w.rSize
	n := 0
	switch x := r.IntN(1000); {
	case x < w.opt.big:
		n = r.IntN(1<<20 + 1)
	case x < 50:
		n = 0
	case x < 700+w.opt.small*10:
		n = r.IntN(300)
	case x < 950+w.opt.small:
		n = r.IntN(4000)
	default:
		n = r.IntN(40000)
	}
	return min(n, w.opt.sndBuf)
}

// carry draws whether a datagram has a limit and a zero-copy cookie.
func (w *world) carry() (x extra) {
	r, o := w.rWork, &w.opt
	if o.giveUp > 0 && r.IntN(100) < o.giveUp {
		x.limit = time.Duration(1+r.IntN(pick(r, 2, 20, 2000))) * time.Millisecond
	}
	if o.zero > 0 && r.IntN(100) < o.zero {
		x.zc = true
		x.from = r.IntN(2) == 0
	}
	return x
}

func (w *world) otherHost(h *host) bool {
	for _, e := range w.eps {
		if e.h != h {
			return true
		}
	}
	return false
}
