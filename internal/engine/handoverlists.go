package engine

import (
	"maps"
	"slices"

	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/mutant"
)

// encodeLists writes the lists whose order does not follow from their elements: what waits
// for a client's event ring, for a socket's room, for a place, and for one more peer.
func (h *handing) encodeLists() {
	w := h.w
	w.Begin(handover.TagUsers)
	for _, c := range h.procs.all {
		encodeNumbers(h, &c.pendOps, &h.txs)
		encodeNumbers(h, &c.pendNote, &h.slots)
		encodeNumbers(h, &c.pendCells, &h.cells)
		encodeNumbers(h, &c.pendSocks, &h.socks)
	}
	for _, s := range h.socks.all {
		if mutant.On(mutant.HandoverWaiters) {
			w.Count(0)
			continue
		}
		encodeNumbers(h, &s.waiters, &h.slots)
	}
	encodeNumbers(h, &h.homeless.audience.List, &h.slots)
	w.I64(h.homeless.at())
	users := h.withClients()
	w.Count(len(users))
	for _, a := range users {
		w.U32(a.uid)
		encodeNumbers(h, &a.waiting.List, &h.slots)
		encodeNumbers(h, &a.idle, &h.slots)
	}
	w.End()
}

// withClients are the users with processes, in order.
func (e *Engine) withClients() (all []*account) {
	for _, uid := range slices.Sorted(maps.Keys(e.users.accounts)) {
		if a := e.users.accounts[uid]; a.clients > 0 {
			all = append(all, a)
		}
	}
	return all
}

func encodeNumbers[T any, P record[T]](h *handing, l *lists.List[T], of *numbered[T, P]) {
	h.w.Count(l.N)
	for at := l.Head; at != nil; at = at.Next {
		h.w.U32(of.number(at.Of))
	}
}

// adoptNumbers calls put with each element of a list.
func adoptNumbers[T any](t *taking, all []*T, put func(*T) bool) {
	for range t.r.Count(len(all), 4) {
		n := t.r.U32()
		x := at(t.r, all, n, "list element")
		if t.r.Err() == nil && !put(x) {
			t.r.Fail("element %d does not belong on the list, or is there twice", n)
		}
		if t.r.Err() != nil {
			return
		}
	}
}

func (t *taking) adoptLists() {
	r := t.r
	r.Begin(handover.TagUsers)
	for _, c := range t.procs {
		t.part(c)
		if t.adoptPending(c); r.Err() != nil {
			return
		}
	}
	t.part(nil)
	for _, s := range t.socks {
		adoptNumbers(t, t.slots, func(sl *slot) bool {
			if sl.wait.On() || sl.q.N == 0 || sl.local != s.local || s.closed {
				return false
			}
			sl.waitOn = s
			s.waiters.Add(&sl.wait, sl)
			return true
		})
	}
	adoptNumbers(t, t.slots, func(sl *slot) bool {
		if !sl.counted || sl.lead != nil || sl.local != nil {
			return false
		}
		sl.leadTo(&t.homeless.audience)
		return true
	})
	if t.homeless.again = r.I64(); (t.homeless.again != 0) != (t.homeless.audience.N > 0) {
		r.Fail("%d destinations are looked at again at %d", t.homeless.audience.N, t.homeless.again)
	}
	for range r.Count(len(t.procs), 4+4+4) {
		r.U32() // here the processes may count for another user: /etc/subuid may have changed
		t.adoptPlaces()
	}
	r.End()
}

// adoptPlaces reads the lists of one user. Each destination goes to the list of the account
// that its process has here.
func (t *taking) adoptPlaces() {
	adoptNumbers(t, t.slots, func(sl *slot) bool {
		if sl.counted || sl.closed || sl.lead != nil {
			return false
		}
		sl.leadTo(&sl.cl.acct.waiting)
		return true
	})
	adoptNumbers(t, t.slots, func(sl *slot) bool {
		if !sl.counted || sl.inIdle.On() {
			return false
		}
		sl.cl.acct.idle.Add(&sl.inIdle, sl)
		return true
	})
}

// adoptPending reads what waits for c's event ring.
func (t *taking) adoptPending(c *Client) {
	adoptNumbers(t, t.txs, func(x *txMsg) bool {
		tells := false
		for _, o := range x.ops() {
			tells = tells || o.tell
		}
		if x.cl != c || !tells || x.inPend.On() {
			return false
		}
		c.pendOps.Add(&x.inPend, x)
		return true
	})
	adoptNumbers(t, t.slots, func(sl *slot) bool {
		if sl.cl != c || sl.pend.On() {
			return false
		}
		c.pendNote.Add(&sl.pend, sl)
		return true
	})
	adoptNumbers(t, t.cells, func(ce *cell) bool {
		if ce.sock.cl != c || ce.pend.On() {
			return false
		}
		c.pendCells.Add(&ce.pend, ce)
		return true
	})
	adoptNumbers(t, t.socks, func(s *socket) bool {
		if s.cl != c || s.closed || s.pend.On() || s.over.N == 0 && !s.overrun {
			return false
		}
		c.pendSocks.Add(&s.pend, s)
		return true
	})
	c.untried = c.pendSocks.N
}
