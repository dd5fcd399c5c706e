package engine

import (
	"net/netip"

	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
)

// destinations are those of all sockets: where they lead, and what their applications are
// notified of. Engine-owned.
type destinations struct {
	e        *Engine
	homeless homeless
}

// slot is a destination (address and port) of one socket.
type slot struct {
	handover.InState
	cl     *Client
	idx    uint32
	sock   *socket
	inSock lists.Link[slot] // socket.slots
	cell   *cell
	addr   netip.Addr
	port   uint16
	closed bool

	leads
	sends
	told
}

// leads is where a destination leads to.
type leads struct {
	peer   *peer      // nil: same host, or no room for one more peer
	local  *localAddr // nil: another host
	lead   *audience  // of those that lead to the same: of a peer, of a port of this host, homeless
	inLead lists.Link[slot]

	counted bool             // it has a place: see place.go
	used    bool             // since it was last asked to give way
	inIdle  lists.Link[slot] // account.idle
}

// sends is what is in progress to a destination.
type sends struct {
	msgs     int               // but those that were passed on at once
	txs      lists.List[txMsg] // these, but those that are being withdrawn
	cancelTo uint64            // those up to this Engine.clock are withdrawn
	inCancel lists.Link[slot]  // sender.cancelling, until that is done

	// Messages in order, on the same host waiting for their copies or for the
	// destination socket, else for a peer or for their turn, see turns.go.
	q      lists.List[txMsg]
	inTurn lists.Link[slot] // cell.turn
	handed int              // datagrams that its connection has and that are not done

	pin    *pin             // the socket that it leads to, see meant.go
	asks   *txMsg           // on its way to find out which that is; the others wait
	pieces int              // of operations, that its connection has and that are not done
	paused lists.Link[slot] // peer.paused, while messages wait for one of these
	gone   lists.Link[slot] // pending.gone

	job    lists.Link[slot] // loop.jobs
	waitOn *socket          // refused there; resumes when it has room
	wait   lists.Link[slot] // waitOn.waiters
}

// told is what the application knows of a destination, and what it still has to be notified
// of.
type told struct {
	pend                           lists.Link[slot] // pending.pendNote, with notices
	lost, nosock, down, up, gaveUp uint64
	ungranted                      uint64 // cookies that could not be granted
	ups, downs                     uint64 // of peer.ups and peer.downs, what it was told of
	relief, crowded                bool
	reach                          uint8 // why its host is not reached, as published
	reachNews                      bool  // ... and not told yet
}

// cell counts the operations of one socket to one address.
type cell struct {
	handover.InState
	idx    uint32
	sock   *socket
	addr   netip.Addr
	mark   barrier.Mark
	pend   lists.Link[cell] // pending.pendCells
	raised bool             // in pending.raised

	// See publishMark. Of the cell's messages so many were ever put into
	// pending.pendOps, and so many of them have left it.
	queued, told uint64
	shown        uint64 // the mark as published
	next, nextAt uint64 // the mark to publish when told has reached nextAt

	turn    lists.List[slot] // with messages that wait for their turn on a connection
	inFlows lists.Link[cell] // peer.flows, while there are some
	credit  int              // what the socket may hand over in its turn, see feed
}

// live reports whether the cell is still that of its socket: the client may use
// it for another one from the moment the socket is closed.
func (ce *cell) live() bool { return !ce.sock.closed }

// openSlot handles KindOpenDest.
func (ds *destinations) openSlot(c *Client, d *shm.SubDest) {
	e := ds.e
	s := c.sock(d.Sock)
	if s == nil {
		return // closed meanwhile
	}
	if d.Slot >= uint32(len(c.slots)) || d.Cell >= uint32(len(c.cells)) || c.slots[d.Slot] != nil {
		e.clients.kill(c, "open destination: slot %d or cell %d out of range or in use", d.Slot, d.Cell)
		return
	}
	addr := netip.AddrFrom16(d.Addr).Unmap()
	if !mayBePeer(s.local, addr) || d.Gen == 0 {
		e.clients.kill(c, "open destination: bad address %v", addr)
		return
	}
	if !s.fixLane(d.Lane) {
		e.clients.kill(c, "open destination: lane %d of a socket of lane %d", d.Lane, s.lane)
		return
	}
	if s.took == nil {
		s.took = new(times)
	}
	ce := c.cells[d.Cell]
	switch {
	case ce == nil || ce.sock.closed:
		ce = &cell{idx: d.Cell, sock: s, addr: addr}
		c.cells[d.Cell] = ce
		c.table.Cell(d.Cell).StoreHWM(0)
	case ce.sock != s || ce.addr != addr:
		e.clients.kill(c, "open destination: cell %d belongs to another destination", d.Cell)
		return
	}
	sl := &slot{cl: c, idx: d.Slot, sock: s, cell: ce, addr: addr, port: d.Port, sends: sends{pin: &pin{}}}
	c.table.Slot(d.Slot).StoreCongested(0) // nothing of its former user
	c.table.Slot(d.Slot).StoreUnreachable(0)
	c.table.Slot(d.Slot).StoreLimits(e.limitsOf(s.local, addr))
	ds.openPlace(sl)
	c.slots[d.Slot] = sl
	s.slots.Add(&sl.inSock, sl)
	c.table.Slot(d.Slot).StoreGen(d.Gen)
	if c.table.Slot(d.Slot).LoadCongested() != 0 {
		sl.crowded = true // again: who looked before Gen was stored saw nothing
		e.clients.note(sl)
	}
}

// home leads sl, and what waits in it, to where it goes.
func (ds *destinations) home(sl *slot) {
	e := ds.e
	if l := e.addrs.by[sl.addr]; l != nil {
		sl.local = l
		e.rx.setSlotCongested(sl, l.cong.Test(sl.port))
		sl.leadTo(l.to(sl.port))
		if sl.q.N > 0 {
			e.loop.addJob(sl)
		}
		return
	}
	if !ds.findHome(sl) {
		e.rx.setSlotCongested(sl, true)
		sl.leadTo(&ds.homeless.audience)
		ds.homeless.again = e.now + homeRetryNs
		e.due.by(ds.homeless.again)
		return
	}
	ds.sendWaiting(sl)
}

// sendWaiting hands what waited for sl to have a peer to the connection.
func (ds *destinations) sendWaiting(sl *slot) {
	e := ds.e
	if sl.q.N > 0 {
		e.tx.queueUp(sl)
		e.dirty.touch(sl.peer)
	}
}

// leadTo puts sl on l instead of the list it was on, nil: on none.
func (sl *slot) leadTo(l *audience) {
	if sl.lead != nil {
		sl.lead.Del(&sl.inLead)
	}
	if sl.lead = l; l != nil {
		l.Add(&sl.inLead, sl)
	}
}

// to is the list of the slots that lead to a port of this host.
func (l *localAddr) to(port uint16) *audience {
	a := l.slots[port]
	if a == nil {
		a = &audience{}
		l.slots[port] = a
	}
	return a
}

// forget drops the list if it is empty.
func (l *localAddr) forget(port uint16) {
	if l.slots[port].N == 0 {
		delete(l.slots, port)
	}
}

// homeless are the destinations that wait until there is room for one more peer.
type homeless struct {
	audience
	again int64 // when to look again; at says whether there is a need to
}

// at is when to look for room again, 0: nobody waits for it.
func (h *homeless) at() int64 {
	if h.audience.N == 0 && !mutant.On(mutant.HomelessStays) {
		return 0
	}
	return h.again
}

// homeRetryNs: how often to look for room for more peers, for so many
// destinations at a time.
const (
	homeRetryNs = 10_000_000
	homesATurn  = 256
)

// findHome leads sl to its peer; false: there are too many.
func (ds *destinations) findHome(sl *slot) bool {
	e := ds.e
	p, err := e.peers.peer(sl.sock.local, sl.addr, sl.sock.lane, sl.cl)
	if err != nil {
		return false
	}
	sl.peer = p
	sl.leadTo(&p.slots)
	sl.ups, sl.downs = p.ups, p.downs
	t := sl.cl.table.Slot(sl.idx)
	t.StoreState(uint32(p.c.State()))
	e.rx.setSlotCongested(sl, p.c.RemoteCong().Test(sl.port))
	e.peers.newReach(sl, p)
	return true
}

// findHomes leads destinations that found too many peers to theirs, if there is
// room now. Until then they are congested, and what was sent before the client
// saw that waits, as it does for any host that cannot be reached.
func (ds *destinations) findHomes() {
	e := ds.e
	if at := ds.homeless.at(); at == 0 || e.now < at {
		e.due.by(at)
		return
	}
	ds.homeless.again = e.now + homeRetryNs
	// Of one user there may be too many and room for another's.
	for range min(ds.homeless.audience.N, homesATurn) {
		sl := ds.homeless.audience.Head.Of
		if ds.findHome(sl) {
			ds.sendWaiting(sl)
		} else {
			sl.leadTo(&ds.homeless.audience) // at its end
		}
	}
	e.due.by(ds.homeless.at())
}

// closeSlot ends a destination: queued same-host messages are withdrawn;
// messages to a peer go on, in their turn. Those of a socket that ends were
// withdrawn before.
func (ds *destinations) closeSlot(sl *slot) {
	e := ds.e
	if sl.closed {
		return
	}
	sl.closed = true
	if p := sl.peer; p != nil {
		ds.refresh(sl)
	} else if sl.txs.N > 0 {
		e.tx.cancel(sl)
	} else {
		e.loop.stopWaiting(sl)
	}
	sl.leadTo(nil)
	if l := sl.local; l != nil {
		l.forget(sl.port)
	}
	if p := sl.peer; p != nil {
		e.peers.dropIfNew(p)
	}
	switch {
	case sl.sock.closed:
		sl.cl.pendNote.Del(&sl.pend)
	case sl.pend.On() && sl.cl.crowded():
		e.clients.foldNotices(sl)
	} // else what it has to tell is still told
	sl.cl.gone.Del(&sl.gone)
	e.loop.jobs.Del(&sl.job)
	sl.cl.slots[sl.idx] = nil
	sl.sock.slots.Del(&sl.inSock)
	sl.cl.table.Slot(sl.idx).StoreGen(0)
	ds.destClosed(sl)
}

// slot returns the open destination i of a socket, or nil.
func (c *Client) slot(i, handle uint32) *slot {
	if i >= uint32(len(c.slots)) {
		return nil
	}
	sl := c.slots[i]
	if sl == nil || sl.sock.handle != handle {
		return nil
	}
	return sl
}

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
