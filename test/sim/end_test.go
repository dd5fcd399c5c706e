package sim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

// finish ends faults and load, lets everything drain, and checks the rules that hold when a run
// is quiet.
func (w *world) finish() {
	w.over = true
	w.net.Faults, w.net.Hook = sim.Faults{}, nil
	w.log(nil, "quiet", int64(len(w.msgs)), int64(len(w.ops)), int64(w.breaks))
	w.drain()
	w.exchange()
	w.checkFlows()
	w.checkOps()
	w.checkOutcomes()
	w.checkDoubts()
	w.checkConns()
	w.shut()
}

// drain runs until no event is left. That must take a bounded number of events.
func (w *world) drain() {
	for _, h := range w.hosts {
		h.wakeAll()
	}
	w.events = 0
	for w.step() {
		if w.events > maxEvents/3 {
			broken("liveness", "not quiet %d events after the last fault", w.events)
		}
	}
	for _, h := range w.hosts {
		if !h.up {
			broken("harness", "host %d is down", h.n)
		}
	}
}

func (h *host) wakeAll() {
	for _, c := range h.clients {
		c.wake()
	}
	h.kick()
}

// exchange has every socket send to every other. Each send must succeed, because nothing is
// congested, full or broken any more. Afterwards every daemon has met every other.
func (w *world) exchange() {
	n := min(w.opt.sndBuf, 20)
	for _, from := range w.eps {
		for _, to := range w.eps {
			if from != to && from.send(to.ap, n, extra{}) == nil {
				w.drain() // only the limits of the sending socket can have been in the way
				if from.send(to.ap, n, extra{}) == nil {
					w.checkConns()
					broken("liveness", "%v cannot send to %v though all is quiet: %v; its daemon has %q", from.ap, to.ap, w.sendErr, engine.Leaks(from.h.e))
				}
			}
		}
	}
	w.drain()
	for _, e := range w.eps {
		if len(e.congested) > 0 {
			broken("congestion", "%v was not told of the relief of %v", e.ap, e.congested)
		}
		if len(e.zeros) > 0 {
			broken("zero copy", "%v has not got back %d cookies, the first of them of message %d", e.ap, len(e.zeros), e.zeros[0].m.id)
		}
	}
}

// checkFlows checks that every datagram was delivered or its sender got a notice.
func (w *world) checkFlows() {
	for _, f := range w.flowsV {
		if f.src.open && !f.cancelled || f.lingered {
			w.checkFlow(f)
		}
	}
}

func (w *world) checkFlow(f *flow) {
	sent, delivered := uint64(len(f.msgs)), uint64(f.delivered)
	fail := func(why string) {
		broken("exactly once", "%v to %v: %d sent, %d delivered, %d lost, %d without a socket, %d given up: %s; undelivered: %v",
			f.src.ap, f.dst, sent, delivered, f.lost, f.nosock, f.gaveUp, why, f.undelivered())
	}
	crashed := f.src.h.restarted(f.dst.Addr(), f.met, f.start)
	noOps, limited, once := w.missing(f)
	if f.changes > f.nosock+f.src.folded+f.dropped() && f.src.open && !f.cancelled && !f.src.c.reopens() {
		fail("later owners of the port got messages though nobody was told that the former was gone")
	}
	switch {
	case once > f.notGranted+f.src.folded && !f.lingered && !crashed && !w.unboundSince(f.dst, f.start):
		fail(fmt.Sprintf("%d with a region for one use are missing, and it was told of %d", once, f.notGranted))
	case delivered+f.nosock > sent:
		fail("more than there were")
	case f.byTCP() && f.lost+f.nosock > 0:
		fail("by RDS/TCP nobody is told of either")
	case f.lost > 0 && !crashed:
		fail("lost, and nobody restarted")
	case f.lost+f.nosock+f.gaveUp > sent || f.gaveUp > uint64(f.limited):
		fail("more than there were")
	case f.lingered && (w.unboundSince(f.dst, f.start) || crashed || f.cancelled):
		// The socket closed before it could read its last notices.
	case w.ports[f.dst] == nil && f.byTCP():
		// By RDS/TCP nobody is told that there was no socket.
	case w.ports[f.dst] == nil && !crashed:
		// No socket was ever bound there. Operations have statuses of their own.
		if f.nosock+f.gaveUp+f.src.folded < noOps+limited {
			fail("nobody was there")
		}
	case w.unboundSince(f.dst, f.start) || crashed:
		// The messages that an old socket had not read are gone with the socket.
	case f.nosock > f.former():
		fail("the socket was there all the time")
	case noOps > 0 || limited > f.gaveUp+f.src.folded && !f.lingered:
		fail("some are missing")
	}
}

// missing counts the messages of a flow that were not delivered and carry no operation. Messages
// with a limit and messages with a region for one use are counted apart.
func (w *world) missing(f *flow) (unlimited, limited, once uint64) {
	for _, m := range f.msgs {
		switch {
		case m.delivered || len(m.ops) > 0:
		case m.once:
			once++
		case m.limit > 0:
			limited++
		default:
			unlimited++
		}
	}
	return unlimited, limited, once
}

func (f *flow) undelivered() (ids []uint64) {
	for _, m := range f.msgs {
		if !m.delivered && len(ids) < 10 {
			ids = append(ids, m.id)
		}
	}
	return ids
}

// checkOps checks the statuses and marks of all operations, and the memory of all regions.
func (w *world) checkOps() {
	for _, o := range w.ops {
		o.kept()
		if !o.e.open || o.unsent {
			continue
		}
		if !o.passed {
			broken("HWM", "of %v to %v stays at %d, operation %d has id %d", o.e.ap, o.cell.to, o.cell.last, o.token, o.id)
		}
		if o.flags.Notify && o.fate == nil {
			broken("status", "operation %d asked for one and has none", o.token)
		}
		lasting := !w.unboundSince(o.m.flow.dst, o.at) && !o.restarted()
		success := o.fate != nil && o.fate.Status == rds.Success || o.fate == nil && o.flags.Report
		if success && !o.m.silent && lasting && !o.m.delivered {
			broken("both or neither", "operation %d succeeded, message %d was not delivered", o.token, o.m.id)
		}
		if o.m.delivered && o.reads() && !o.readRight && o.fate != nil && o.fate.Status == rds.Success {
			broken("both or neither", "message %d of read %d was delivered, the data never came", o.m.id, o.token)
		}
	}
	for _, r := range w.regions {
		r.verify()
		for _, k := range r.words {
			k.check()
		}
		if r.access&rds.UseOnce != 0 {
			r.checkOnce()
		}
	}
}

// checkOnce checks that a region for one use served at most one message, however often it was
// granted.
func (r *region) checkOnce() {
	var use *message
	for _, o := range r.ops {
		if !o.m.delivered && (o.fate == nil || o.fate.Status != rds.Success) {
			continue
		}
		if use != nil && use != o.m {
			broken("access", "use-once region %d served messages %d and %d", r.id, use.id, o.m.id)
		}
		use = o.m
	}
}

// checkConns checks that the two ends of each connection agree.
func (w *world) checkConns() {
	for _, a := range w.hosts {
		for _, i := range a.conns() {
			b := w.hostOf(i.Remote)
			if w.unused(a, b, &i) {
				w.down = append(w.down, connKey{a.n, b.n, i.Lane, i.Path})
				continue
			}
			if !i.Ready {
				broken("liveness", "host %d to %d in lane %d, path %d is %v though all is quiet, with %d queued, %d of them stopped, and %d unacked: %v", a.n, b.n, i.Lane, i.Path, i.State, i.Queued, i.Stopped, i.Unacked, i.LastError)
			}
			j := b.connTo(a.addr, i.Lane, i.Path)
			if j == nil || !j.Ready {
				broken("liveness", "host %d is connected to %d, but not the other way", a.n, b.n)
			}
			if i.Stats.ProtocolErrors > 0 {
				broken("protocol", "host %d saw %d errors of %d", a.n, i.Stats.ProtocolErrors, b.n)
			}
			if w.byTCP(a.addr, b.addr) {
				w.saw("TCP: connected at the end")
			} else if got, want := int(i.Credits+j.CreditsOwed), max(w.opt.credits, conn.MinCredits); got > want || got < min(want, conn.MinCredits) {
				broken("credits", "host %d to %d: %d with the sender, %d owed, %d in all", a.n, b.n, i.Credits, j.CreditsOwed, want)
			}
			own, _ := engine.CongestionMap(a.e, a.addr, b.addr, i.Lane, i.Path)
			_, seen := engine.CongestionMap(b.e, b.addr, a.addr, i.Lane, i.Path)
			if !sameMap(own, seen) {
				broken("congestion", "host %d has %d ports congested, host %d believes %d", a.n, own.Count(), b.n, seen.Count())
			}
		}
	}
}

// conns are the connections of h to the other hosts.
func (h *host) conns() []conn.Info {
	return slices.DeleteFunc(engine.Conns(h.e), func(i conn.Info) bool { return i.Remote == kwKernel })
}

// connKey names one end of a connection.
type connKey struct {
	host, to   int
	lane, path uint8
}

// unused reports whether a connection is down, no socket uses its lane, and nobody waits for what it has, so that
// nobody connects it again. Which path a socket uses is not looked at.
func (w *world) unused(a, b *host, i *conn.Info) bool {
	for _, e := range w.eps {
		if e.lane == i.Lane && !w.opt.paths && (e.h == a || e.h == b) {
			return false
		}
	}
	return i.State == conn.Down && (i.Queued+i.Unacked == 0 || engine.Idle(a.e, i))
}

func sameMap(a, b *cong.Map) bool {
	var x, y [8192]byte
	a.Put(x[:])
	b.Put(y[:])
	return x == y
}

func (h *host) connTo(a netip.Addr, lane, path uint8) *conn.Info {
	for _, i := range engine.Conns(h.e) {
		if i.Remote == a && i.Lane == lane && i.Path == path {
			return &i
		}
	}
	return nil
}

// shut releases and closes everything in order, and checks that the daemons have nothing left.
func (w *world) shut() {
	for _, e := range append([]*endpoint{}, w.eps...) {
		for len(e.regions) > 0 {
			e.regions[len(e.regions)-1].release()
		}
	}
	w.drain()
	for _, r := range w.regions {
		r.verify()
	}
	for _, h := range w.hosts {
		for _, c := range append([]*client{}, h.clients...) {
			for _, m := range c.mem {
				if err := m.buf.Free(); err != nil {
					broken("leak", "a buffer that nothing uses: %v", err)
				}
			}
			for len(c.eps) > 0 {
				if e := c.eps[0]; len(c.eps)%2 == 0 {
					e.close()
				} else {
					e.closeWait() // returns at once, because all is quiet
				}
			}
			c.kill()
		}
	}
	w.drain()
	for _, h := range w.hosts {
		if left := engine.Leaks(h.e); len(left) > 0 {
			broken("leak", "host %d: %q", h.n, left)
		}
	}
	w.drainedConns()
}

// drainedConns checks that closing left the connections as they were.
func (w *world) drainedConns() {
	for _, h := range w.hosts {
		for _, i := range h.conns() {
			if !i.Ready && !slices.Contains(w.down, connKey{h.n, w.hostOf(i.Remote).n, i.Lane, i.Path}) {
				broken("leak", "host %d to %v is %v after closing: %v", h.n, i.Remote, i.State, i.LastError)
			}
		}
	}
}
