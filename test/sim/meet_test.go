package sim

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
)

// What the workload of TestSim does besides, so that features meet.

// deafFor has the socket's process look at none of its rings for ns.
func (e *endpoint) deafFor(ns int64) {
	w, c := e.w, e.c
	for range w.rMeet.IntN(24) {
		if e.open && len(e.knows) > 0 {
			e.operateOn(pick(w.rMeet, e.knows...), false) // whose statuses will not be read
		}
	}
	if c.gone {
		return
	}
	c.deaf = max(c.deaf, w.now()+ns)
	w.log(c.h, "deaf", ns, 0, 0)
	w.net.At(c.deaf, func() {
		w.meet()
		c.wake()
	})
}

// reopens has a host that begins anew meet no other one for a while. Its processes work with each
// other, and one of them does not look at what becomes of that.
func (h *host) reopens() {
	w := h.w
	owner, user := pick(w.rMeet, h.clients...).eps, pick(w.rMeet, h.clients...).eps
	if len(owner)*len(user) == 0 {
		return
	}
	for _, o := range w.hosts {
		if o != h {
			w.swallow(h.addr, o.addr)
		}
	}
	a, b := pick(w.rMeet, owner...), pick(w.rMeet, user...)
	r := a.register(60_000, rds.AllowRead|rds.AllowWrite)
	if r == nil {
		return
	}
	r.offered[b.ap] = true
	a.offersOnce(r, b.ap)
	a.send(b.ap, 20, extra{cookie: r.r.Cookie(), tells: r})
	w.net.At(w.now()+200_000, func() {
		if !b.open || len(b.knows) == 0 {
			return
		}
		for range w.opt.params.EventEntries {
			b.operateOn(b.knows[len(b.knows)-1], false)
		}
		h.presses()
		w.meet()
		if b.open {
			b.deafFor(5_000_000)
		}
	})
}

// presses has sockets of h begin operations until a user of the host is at its quota, if the run
// draws that. What its caller begins then meets it.
func (h *host) presses() {
	w := h.w
	if !w.opt.press || !h.up {
		return
	}
	for _, e := range slices.Clone(w.eps) {
		if e.h != h || !e.open || e.c.full || e.c.waits > 0 || len(e.knows) == 0 {
			continue
		}
		for i := 0; i < 2*w.opt.quotaOps && e.open && len(e.knows) > 0; i++ {
			e.operateOn(e.knows[(len(e.knows)-1-i%3+3)%len(e.knows)], false)
		}
	}
	h.turn()
}

// copies has sockets of h begin operations within the host.
func (h *host) copies() {
	for _, e := range slices.Clone(h.w.eps) {
		if e.h == h && e.open && !e.c.full {
			for _, r := range slices.Clone(e.knows) {
				if r.e.h == h && e.open {
					e.operateOn(r, false)
				}
			}
		}
	}
	h.turn()
}

// drain has the administrator drain the daemon or the address of a host, for a while.
func (h *host) drain() {
	w := h.w
	var addr netip.Addr
	if w.rMeet.IntN(3) > 0 {
		addr = pick(w.rMeet, w.hosts...).addr
	}
	if h.pausing.on || h.drained || !h.drains(addr, ctl.DrainBegin) {
		return
	}
	h.floods()
	h.undrainIn(addr, below(w.rMeet, pick[int64](w.rMeet, 50_000, 5_000_000, 50_000_000)))
}

// floods has one process of h, if processes do not look at times, ask for more statuses than its
// event ring has room for, and not look.
func (h *host) floods() {
	w := h.w
	if w.opt.deaf == 0 {
		return
	}
	for _, e := range slices.Clone(w.eps) {
		if e.h != h || !e.open || e.c.full || e.c.waits > 0 || e.c.deaf > w.now() || len(e.knows) == 0 {
			continue
		}
		for i := uint32(0); i < 4*w.opt.params.EventEntries && e.open && len(e.knows) > 0; i++ {
			e.operateOn(e.knows[len(e.knows)-1], false)
		}
		if e.open {
			e.deafFor(20_000_000)
		}
		return
	}
}

func (h *host) undrainIn(addr netip.Addr, ns int64) {
	w, life := h.w, h.life
	w.net.At(w.now()+ns, func() {
		switch {
		case h.life != life || !h.up:
		case h.pausing.on: // it answers when it goes on
			h.undrainIn(addr, 1_000_000)
		default:
			h.drains(addr, ctl.DrainResume)
		}
	})
}

// drains begins or ends a drain. It reports whether the daemon did so.
func (h *host) drains(addr netip.Addr, do string) bool {
	if h.endTurn(); !h.up {
		return false
	}
	_, err := h.e.Inspect(func(f func()) error { f(); return nil }).Drain(addr, do)
	if errors.Is(err, ctl.ErrNotFound) {
		return false
	}
	must(err)
	if !addr.IsValid() {
		h.drained = do == ctl.DrainBegin
	}
	h.w.log(h, do, int64(addr.As16()[15]), 0, 0)
	h.kick()
	return true
}

// barrier waits for all operations to one destination host.
func (e *endpoint) barrier() {
	w := e.w
	if len(e.knows) == 0 {
		return
	}
	r := pick(w.rMeet, e.knows...)
	for range 1 + w.rMeet.IntN(12) {
		e.operateOn(r, false)
	}
	c := e.cell(r.e.ap.Addr())
	id := uint64(len(c.ops))
	if id == 0 || c.n == len(c.ops) {
		return
	}
	w.log(e.h, "barrier", int64(id), 0, 0)
	var hwm uint64
	var err error
	e.inBarrier = true
	w.net.At(w.now(), func() {
		e.cancelsBeside()
		e.beside(maxBeside)
	})
	e.c.blocking(func() { hwm, err = e.s.Barrier(context.Background(), c.to, id) })
	e.inBarrier = false
	switch {
	case !e.open || errors.Is(err, rds.ErrDaemonGone) && e.c.gone:
	case err != nil:
		broken("harness", "barrier: %v", err)
	case hwm < id:
		broken("HWM", "Barrier for %d returned %d", id, hwm)
	}
}

// cancelsBeside has another process of the host cancel what it has sent, while e waits in Barrier.
func (e *endpoint) cancelsBeside() {
	w := e.w
	if w.opt.cancel == 0 || w.rMeet.IntN(4) > 0 {
		return
	}
	for _, f := range w.flowsV {
		if f.src.h == e.h && f.src.open && f.src.c.waits == 0 {
			w.cancel(f)
			return
		}
	}
}

// maxBeside is how many actions there are while one call waits in Barrier.
const maxBeside = 200

// beside is the load while e waits in Barrier, up to so many actions: calls that do not wait, and
// ends of processes.
func (e *endpoint) beside(left int) {
	w := e.w
	if !e.inBarrier || left == 0 {
		return
	}
	if len(w.eps)*len(w.flowsV) > 0 {
		pick(w.rMeet, w.eps...).besides()
	}
	w.net.At(w.now()+1+below(w.rMeet, w.opt.gap), func() { e.beside(left - 1) })
}

// besides is one action of that load.
func (e *endpoint) besides() {
	w := e.w
	switch {
	case w.rMeet.IntN(1000) < w.opt.kill && w.breaks <= enoughBreaks && !e.h.drained:
		e.c.another()
	case e.c.deaf > w.now() || e.c.full || e.c.waits > 0 || len(w.msgs) > 4*wantMessages:
	case w.rMeet.IntN(1000) < w.opt.cancel:
		if f := pick(w.rMeet, w.flowsV...); f.src.open && f.src.c.waits == 0 {
			w.cancel(f)
		}
	case len(e.knows) > 0 && w.rMeet.IntN(100) < w.opt.opShare:
		e.operateOn(pick(w.rMeet, e.knows...), false)
	default:
		e.burst()
	}
}
