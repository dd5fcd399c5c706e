package engine

import (
	"slices"

	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
)

// handOverLists has the lists go over whose order does not follow from their elements: what waits
// for a client's event ring, for a socket's room, for a place, and for one more peer.
func (x *crossing) handOverLists() {
	s := x.s
	for _, c := range x.procs.All {
		x.part(c)
		if x.handOverPending(c); s.Err() != nil {
			return
		}
	}
	x.part(nil)
	for _, so := range x.socks.All {
		handOverList(x, &so.waiters, &x.slots, func(sl *slot) bool {
			if sl.wait.On() || sl.q.N == 0 || sl.way != transport(so.local) || so.closed {
				return false
			}
			sl.waitOn = so
			so.waiters.Add(&sl.wait, sl)
			return true
		})
	}
	handOverList(x, &x.dests.nowhere.audience.List, &x.slots, func(sl *slot) bool {
		// A state may list one that leads elsewhere.
		if !sl.counted || sl.lead != nil || sl.way != transport(&x.dests.nowhere) {
			return false
		}
		sl.leadTo(&x.dests.nowhere.audience)
		return true
	})
	again := x.dests.nowhere.again
	if x.dests.nowhere.audience.N == 0 { // closed ones that wait for their path's connection find that out again
		again = 0
	}
	if s.I64(&again); s.Reads() {
		if x.dests.nowhere.again = again; (again != 0) != (x.dests.nowhere.audience.N > 0) {
			s.Fail("%d destinations are looked at again at %d", x.dests.nowhere.audience.N, again)
		}
	}
	users := x.withClients()
	for i := range s.Count(len(users), len(x.procs.All), 4+4+4) {
		a := handover.Nth(s, users, i)
		if s.Reads() {
			a = &account{} // here the processes may count for another: /etc/subuid may have changed
		}
		s.U32(&a.of.UID)
		x.handOverPlaces(a)
	}
}

// withClients are the accounts with processes, in order.
func (e *Engine) withClients() (all []*account) {
	for _, a := range e.users.accounts { // they are sorted
		if a.clients > 0 {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *account) int { return a.of.Compare(b.of) })
	return all
}

// each has a list of records go over, each by one, up to the first error. One that is read gets new
// records.
func each[T any](x *crossing, all []*T, most, least int, one func(*T)) {
	for i := range x.s.Count(len(all), most, least) {
		r := handover.Nth(x.s, all, i)
		if x.s.Reads() {
			r = new(T)
		}
		if one(r); x.s.Err() != nil {
			return
		}
	}
}

// elements are those of l, in order.
func elements[T any](l *lists.List[T]) []*T {
	all := make([]*T, 0, l.N)
	for at := l.Head; at != nil; at = at.Next {
		all = append(all, at.Of)
	}
	return all
}

// handOverList has a list go over as the numbers of its elements. Of one that is read, put lists each,
// or returns false.
func handOverList[T any, P handover.Record[T]](x *crossing, l *lists.List[T], of *handover.Records[T, P], put func(*T) bool) {
	s, at := x.s, l.Head
	for range s.Count(l.N, len(of.All), 4) {
		var e *T
		if !s.Reads() {
			e = at.Of
			at = at.Next
		}
		if of.Ref(s, &e, "list element"); !s.Reads() {
			continue
		}
		if s.Err() == nil && !put(e) {
			s.Fail("an element does not belong on the list, or is there twice")
		}
		if s.Err() != nil {
			return
		}
	}
}

// handOverPlaces has the lists of one user go over. Each destination goes to the list of the account
// that its process has here.
func (x *crossing) handOverPlaces(a *account) {
	handOverList(x, &a.waiting.List, &x.slots, func(sl *slot) bool {
		if sl.counted || sl.closed || sl.lead != nil {
			return false
		}
		sl.leadTo(&sl.sock.cl.acct.waiting)
		return true
	})
	handOverList(x, &a.idle, &x.slots, func(sl *slot) bool {
		if !sl.counted || sl.inIdle.On() {
			return false
		}
		sl.sock.cl.acct.idle.Add(&sl.inIdle, sl)
		return true
	})
}

// handOverPending has what waits for c's event ring go over.
func (x *crossing) handOverPending(c *Client) {
	handOverList(x, &c.pendOps, &x.txs, func(t *txMsg) bool {
		tells := false
		for _, o := range t.ops() {
			tells = tells || o.tell
		}
		if t.sock.cl != c || !tells || t.inPend.On() {
			return false
		}
		c.pendOps.Add(&t.inPend, t)
		return true
	})
	handOverList(x, &c.pendNote, &x.slots, func(sl *slot) bool {
		if sl.sock.cl != c || sl.pend.On() {
			return false
		}
		c.pendNote.Add(&sl.pend, sl)
		return true
	})
	handOverList(x, &c.pendCells, &x.cells, func(ce *cell) bool {
		if ce.sock.cl != c || ce.pend.On() {
			return false
		}
		c.pendCells.Add(&ce.pend, ce)
		return true
	})
	handOverList(x, &c.pendSocks, &x.socks, func(so *socket) bool {
		if so.cl != c || so.closed || so.pend.On() || so.over.N == 0 && !so.overrun {
			return false
		}
		c.pendSocks.Add(&so.pend, so)
		return true
	})
	if x.s.Reads() {
		c.untried = c.pendSocks.N
	}
}
