package engine

const mostSlots = 1 << 24 // in a state

func (x *crossing) handOverPin(p *pin) {
	s := x.s
	x.part(nil)
	s.U64(&p.life)
	s.U32(&p.inc)
	if f, known := s.Flags(&p.gone, &p.told); !known || p.told && !p.gone {
		s.Fail("a pin with flags %#x", f)
	}
	if s.U64(&p.at); s.Reads() {
		if p.anybody() { // a daemon that did not know it has had it meet a socket
			*p = pin{life: anybody}
		}
		x.pins.All = append(x.pins.All, p)
	}
}

// handOverCell has a barrier cell go over.
func (x *crossing) handOverCell(ce *cell) {
	s := x.s
	x.part(nil)
	var used bool
	var last uint64
	if !s.Reads() {
		c := ce.sock.cl
		used, last = ce.idx < uint32(len(c.cells)) && c.cells[ce.idx] == ce, ce.mark.Last()
	}
	x.socks.Ref(s, &ce.sock, "socket")
	s.U32(&ce.idx)
	s.Addr(&ce.addr)
	s.Bool(&used)
	s.U64s(&last, &ce.queued, &ce.told, &ce.shown, &ce.next, &ce.nextAt)
	if !s.Reads() || s.Err() != nil {
		return
	}
	ce.mark.Start(last)
	x.part(ce.sock.cl)
	switch c := ce.sock.cl; {
	case int64(ce.queued-ce.told) < 0, int64(last-ce.next) < 0, int64(ce.next-ce.shown) < 0:
		s.Fail("a barrier at %d, next %d of %d, with %d of %d statuses told", ce.shown, ce.next, last, ce.told, ce.queued)
	case !used:
	case ce.idx >= uint32(len(c.cells)) || c.cells[ce.idx] != nil || ce.addr.Is4() != ce.sock.local.addr.Is4():
		s.Fail("barrier cell %d is none, or is used twice", ce.idx)
	default:
		c.cells[ce.idx] = ce
	}
	x.cells.All = append(x.cells.All, ce)
}

// Where a destination leads.
const (
	leadsNowhere = iota
	leadsHere
	leadsAway
)

// leading says where sl leads, to a peer by which path, and whether it is on the list of those that lead there.
func (sl *slot) leading() (leads, path uint8, listed bool) {
	switch w := sl.way.(type) { // the state has a number for each
	case *localAddr:
		return leadsHere, 0, sl.lead != nil
	case *peer:
		if !w.gone {
			return leadsAway, w.path, sl.lead != nil
		}
	}
	return leadsNowhere, 0, false
}

// handOverSlot has a destination go over.
func (x *crossing) handOverSlot(sl *slot) {
	s := x.s
	x.part(nil)
	var leads, path uint8
	var listed, folded bool
	if s.Reads() {
		sl.way, sl.congestedAt = &x.dests.nowhere, x.now
	} else {
		leads, path, listed = sl.leading()
		folded = sl.sock.folded == sl
	}
	x.socks.Ref(s, &sl.sock, "socket")
	x.cells.Ref(s, &sl.cell, "cell")
	x.pins.RefOrNil(s, &sl.pin, "pin")
	s.U32(&sl.idx)
	s.U16(&sl.port)
	s.Addr(&sl.addr)
	f, known := s.Flags(&sl.closed, &listed, &sl.counted, &sl.used, &sl.relief, &sl.crowded, &sl.reachNews, &folded)
	s.U8(&leads)
	s.U8(&sl.reach)
	s.U64s(&sl.lost, &sl.nosock, &sl.down, &sl.up, &sl.gaveUp, &sl.ungranted, &sl.ups, &sl.downs)
	if s.Version() >= 7 {
		s.U8(&path)
	}
	if !s.Reads() || s.Err() != nil {
		return
	}
	x.part(sl.sock.cl)
	x.slots.All = append(x.slots.All, sl)
	switch {
	case !known, sl.reachNews && sl.reach == 0, listed && leads == leadsNowhere, sl.cell.sock != sl.sock && !folded,
		(sl.counted || !sl.closed) && sl.pin == nil, folded && (!sl.closed || sl.sock.folded != nil):
		s.Fail("destination %v:%d with flags %#x, reach %d, leading to %d", sl.addr, sl.port, f, sl.reach, leads)
		return
	case sl.closed && (sl.counted || listed):
		s.Fail("destination %v:%d is closed and has a place", sl.addr, sl.port)
		return
	}
	if folded {
		sl.sock.folded = sl
	}
	if !sl.closed && !x.openAgain(sl) {
		return
	}
	x.lead(sl, leads, path, listed)
}

// openAgain gives sl its place in its process's table.
func (x *crossing) openAgain(sl *slot) bool {
	c := sl.sock.cl
	switch {
	case sl.sock.closed, sl.idx >= uint32(len(c.slots)) || c.slots[sl.idx] != nil, !mayBePeer(sl.sock.local, sl.addr):
		x.s.Fail("destination slot %d is none, or is used twice", sl.idx)
		return false
	case sl.sock.took == nil, sl.cell.idx >= uint32(len(c.cells)) || c.cells[sl.cell.idx] != sl.cell || sl.cell.addr != sl.addr:
		x.s.Fail("destination %v:%d has the barrier cell of another", sl.addr, sl.port)
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
func (x *crossing) lead(sl *slot, leads, path uint8, listed bool) {
	l := x.addrs.by[sl.addr]
	switch {
	case leads == leadsHere && l != nil:
		if sl.leadBy(l); listed {
			l.join(sl)
		}
	case leads == leadsAway && l == nil && sl.addr.IsValid():
		x.away = append(x.away, away{sl, path, listed})
	case leads != leadsNowhere: // the settings may have other addresses
		x.part(nil)
		x.s.Fail("destination %v:%d leads to %d", sl.addr, sl.port, leads)
	}
}

// away is a destination that leads to another host.
type away struct {
	sl     *slot
	path   uint8
	listed bool
}

// link leads destinations to their connections, has what waits for its turn take turns, and
// checks that nothing was left out.
func (x *crossing) link() {
	for _, a := range x.away {
		sl, at := a.sl, lanePath(a.sl.sock.lane).in(a.path)
		if x.tcpPeer(sl.sock.local, sl.addr) {
			at = 0
		}
		p := x.peers.hosts[remoteKey{sl.sock.local.addr, sl.addr}].lane(at)
		if p == nil || sl.lead != nil {
			x.s.Fail("destination %v in lane %d leads to no connection", sl.addr, sl.sock.lane)
			return
		}
		if sl.leadBy(p); a.listed {
			sl.leadTo(&p.slots)
		}
	}
	for _, sl := range x.slots.All {
		if sl.counted && sl.lead == nil {
			x.s.Fail("destination %v:%d has a place and leads nowhere", sl.addr, sl.port)
		}
		if sl.q.N > 0 {
			sl.way.resume(sl)
		}
	}
	x.linkMessages()
	for _, p := range x.peers.all {
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
		e.dests.tell(&p.slots)
		e.dirty.touch(p)
	}
	for _, l := range e.addrs.all {
		if !l.cong.Empty() {
			l.congNews, e.rx.congNews = true, true
		}
	}
	for _, a := range e.users.accounts { // each is looked at, in any order
		if a.waiting.N > 0 {
			e.dests.placesWanted(a)
		}
	}
	e.keys.endLost()
	e.due.by(e.dests.nowhere.at())
	e.due.by(e.due.limits.Next())
	e.peers.sweepSoon()
}
