package engine

import (
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
)

const mostSlots = 1 << 24 // in a state

// encodeSlots writes cells, pins and destinations.
func (h *handing) encodeSlots() {
	w := h.w
	w.Begin(handover.TagSlots)
	w.Count(len(h.cells.all))
	for _, ce := range h.cells.all {
		c := ce.sock.cl
		w.U32(h.socks.number(ce.sock))
		w.U32(ce.idx)
		w.Addr(ce.addr)
		w.Bool(ce.idx < uint32(len(c.cells)) && c.cells[ce.idx] == ce)
		last := ce.mark.Last()
		if mutant.On(mutant.HandoverMark) {
			last = ce.mark.HWM()
		}
		shown := ce.shown
		if mutant.On(mutant.HandoverShown) {
			shown = 0
		}
		w.U64s(last, ce.queued, ce.told, shown, ce.next, ce.nextAt)
	}
	w.Count(len(h.pins.all))
	for _, p := range h.pins.all {
		inc := p.inc
		if mutant.On(mutant.HandoverPin) {
			inc = 0
		}
		w.U64(p.life)
		w.U32(inc)
		w.Flags(p.gone, p.told)
		w.U64(p.at)
	}
	w.Count(len(h.slots.all))
	for _, sl := range h.slots.all {
		h.encodeSlot(sl)
	}
	w.End()
}

func (t *taking) adoptSlots() {
	r := t.r
	r.Begin(handover.TagSlots)
	for range r.Count(mostSlots, 4+4+4+1+6*8) {
		t.adoptCell()
		if r.Err() != nil {
			return
		}
	}
	t.part(nil)
	for range r.Count(mostSlots, 8+4+2+8) {
		p := &pin{life: r.U64(), inc: r.U32()}
		f := r.U16()
		p.gone, p.told, p.at = f&1 != 0, f&2 != 0, r.U64()
		if f&^3 != 0 || p.told && !p.gone {
			r.Fail("a pin with flags %#x", f)
		}
		t.pins = append(t.pins, p)
	}
	t.part(nil)
	for range r.Count(mostSlots, 4+4+4+4+2+4+2+1+1+8*8) {
		t.adoptSlot()
		if r.Err() != nil {
			return
		}
	}
	r.End()
}

func (t *taking) adoptCell() {
	r := t.r
	t.part(nil)
	ce := &cell{sock: at(r, t.socks, r.U32(), "socket"), idx: r.U32(), addr: r.Addr()}
	used, last := r.Bool(), r.U64()
	ce.queued, ce.told, ce.shown, ce.next, ce.nextAt = r.U64(), r.U64(), r.U64(), r.U64(), r.U64()
	if r.Err() != nil {
		return
	}
	ce.mark.Start(last)
	t.part(ce.sock.cl)
	switch c := ce.sock.cl; {
	case int64(ce.queued-ce.told) < 0, int64(last-ce.next) < 0, int64(ce.next-ce.shown) < 0:
		r.Fail("a barrier at %d, next %d of %d, with %d of %d statuses told", ce.shown, ce.next, last, ce.told, ce.queued)
	case !used:
	case ce.idx >= uint32(len(c.cells)) || c.cells[ce.idx] != nil || ce.addr.Is4() != ce.sock.local.addr.Is4():
		r.Fail("barrier cell %d is none, or is used twice", ce.idx)
	default:
		c.cells[ce.idx] = ce
	}
	t.cells = append(t.cells, ce)
}

// Where a destination leads, and what a destination's record says of it.
const (
	leadsNowhere = iota
	leadsHere
	leadsAway

	slotClosed = 1 << (iota - 3)
	slotListed // on the list of those that lead there
	slotCounted
	slotUsed
	slotRelief
	slotCrowded
	slotReachNews
	slotFolded // of its socket

	slotAll = 1<<(iota-3) - 1
)

func (h *handing) encodeSlot(sl *slot) {
	w := h.w
	leads, listed := uint8(leadsNowhere), false
	switch {
	case sl.peer != nil && !sl.peer.gone:
		leads, listed = leadsAway, sl.lead == &sl.peer.slots
	case sl.local != nil:
		leads, listed = leadsHere, sl.lead != nil && sl.lead == sl.local.slots[sl.port]
	}
	w.U32(h.socks.number(sl.sock))
	w.U32(h.cells.number(sl.cell))
	w.U32(h.pins.number(sl.pin))
	w.U32(sl.idx)
	w.U16(sl.port)
	w.Addr(sl.addr)
	w.Flags(sl.closed, listed, sl.counted, sl.used, sl.relief && !mutant.On(mutant.HandoverRelief), sl.crowded, sl.reachNews, sl.sock.folded == sl)
	w.U8(leads)
	w.U8(sl.reach)
	lost := sl.lost
	if mutant.On(mutant.HandoverNotices) {
		lost = 0
	}
	w.U64s(lost, sl.nosock, sl.down, sl.up, sl.gaveUp, sl.ungranted, sl.ups, sl.downs)
}

func (t *taking) adoptSlot() {
	r := t.r
	t.part(nil)
	sl := &slot{sock: at(r, t.socks, r.U32(), "socket"), cell: at(r, t.cells, r.U32(), "cell")}
	if pin := r.U32(); pin != noNumber {
		sl.pin = at(r, t.pins, pin, "pin")
	}
	sl.idx, sl.port, sl.addr = r.U32(), r.U16(), r.Addr()
	f := r.U16()
	leads := r.U8()
	sl.closed, sl.counted, sl.used = f&slotClosed != 0, f&slotCounted != 0, f&slotUsed != 0
	sl.relief, sl.crowded, sl.reachNews = f&slotRelief != 0, f&slotCrowded != 0, f&slotReachNews != 0
	sl.reach = r.U8()
	for _, n := range [...]*uint64{&sl.lost, &sl.nosock, &sl.down, &sl.up, &sl.gaveUp, &sl.ungranted, &sl.ups, &sl.downs} {
		*n = r.U64()
	}
	if r.Err() != nil {
		return
	}
	sl.cl = sl.sock.cl
	t.part(sl.cl)
	t.slots = append(t.slots, sl)
	listed, folded := f&slotListed != 0, f&slotFolded != 0
	switch {
	case f&^slotAll != 0, sl.reachNews && sl.reach == 0, listed && leads == leadsNowhere, sl.cell.sock != sl.sock && !folded,
		(sl.counted || !sl.closed) && sl.pin == nil, folded && (!sl.closed || sl.sock.folded != nil):
		r.Fail("destination %v:%d with flags %#x, reach %d, leading to %d", sl.addr, sl.port, f, sl.reach, leads)
		return
	case sl.closed && (sl.counted || listed):
		r.Fail("destination %v:%d is closed and has a place", sl.addr, sl.port)
		return
	}
	if folded {
		sl.sock.folded = sl
	}
	if !sl.closed && !t.openAgain(sl) {
		return
	}
	t.lead(sl, leads, listed)
}

// openAgain gives sl its place in its process's table.
func (t *taking) openAgain(sl *slot) bool {
	c := sl.cl
	switch {
	case sl.sock.closed, sl.idx >= uint32(len(c.slots)) || c.slots[sl.idx] != nil, !mayBePeer(sl.sock.local, sl.addr):
		t.r.Fail("destination slot %d is none, or is used twice", sl.idx)
		return false
	case sl.sock.took == nil, sl.cell.idx >= uint32(len(c.cells)) || c.cells[sl.cell.idx] != sl.cell || sl.cell.addr != sl.addr:
		t.r.Fail("destination %v:%d has the barrier cell of another", sl.addr, sl.port)
		return false
	}
	c.slots[sl.idx] = sl
	sl.sock.slots.Add(&sl.inSock, sl)
	if sl.counted {
		c.acct.dests++
	}
	return true
}

// lead leads sl where it has led. Connections come later, see link.
func (t *taking) lead(sl *slot, leads uint8, listed bool) {
	l := t.addrs.by[sl.addr]
	switch {
	case leads == leadsHere && l != nil:
		sl.local = l
		if listed {
			sl.leadTo(l.to(sl.port))
		}
	case leads == leadsAway && l == nil && sl.addr.IsValid():
		t.away = append(t.away, away{sl, listed})
	case leads != leadsNowhere: // the settings may have other addresses
		t.part(nil)
		t.r.Fail("destination %v:%d leads to %d", sl.addr, sl.port, leads)
	}
}

// away is a destination that leads to another host.
type away struct {
	sl     *slot
	listed bool
}

// link leads destinations to their connections, has what waits for its turn take turns, and
// checks that nothing was left out.
func (t *taking) link() {
	for _, a := range t.away {
		sl, lane := a.sl, a.sl.sock.lane
		if t.tcpPeer(sl.sock.local, sl.addr) {
			lane = 0
		}
		p := t.peers.hosts[remoteKey{sl.sock.local.addr, sl.addr}].lane(lane)
		if p == nil || sl.lead != nil {
			t.r.Fail("destination %v in lane %d leads to no connection", sl.addr, sl.sock.lane)
			return
		}
		sl.peer = p
		if a.listed {
			sl.leadTo(&p.slots)
		}
	}
	for _, sl := range t.slots {
		if sl.counted && sl.lead == nil {
			t.r.Fail("destination %v:%d has a place and leads nowhere", sl.addr, sl.port)
		}
		if sl.peer != nil && sl.q.N > 0 {
			t.queueUp(sl)
		}
	}
	t.linkMessages()
	for _, p := range t.peers.all {
		for i, f := range &connCounters {
			p.counted[i] = *f.from(p.c.Stats())
		}
	}
}

// beginAdopted has an engine that goes on look at all that it adopted: what was in progress
// in the engine before it when that one stood still is due now.
func (e *Engine) beginAdopted() {
	for _, c := range e.clients.all {
		c.again = c.waits()
		e.Unpark(c)
	}
	for _, p := range e.peers.all {
		e.tell(&p.slots)
		e.touch(p)
	}
	for _, l := range e.addrs.all {
		if !l.cong.Empty() {
			l.congNews, e.congNews = true, true
		}
	}
	for _, a := range e.users.accounts { // each is looked at, in any order
		if a.waiting.N > 0 {
			e.placesWanted(a)
		}
	}
	e.endLost()
	e.due.by(e.homeless.at())
	e.due.by(e.due.limits.Next())
	e.sweepSoon()
}
