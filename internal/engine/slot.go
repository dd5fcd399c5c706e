package engine

import (
	"net/netip"

	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
)

// destinations are those of all sockets: where they lead, and what their applications are
// notified of. Engine-owned.
type destinations struct {
	e       *Engine
	nowhere nowhere
}

// slot is a destination (address and port) of one socket.
type slot struct {
	handover.InState
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
	way    transport
	lead   *audience // of those that lead to the same: to a peer, to a port of this host, nowhere
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
	queued int              // their datagrams
	taker  *taker           // takes turns with it, nil: it waits for none
	inTurn lists.Link[slot] // taker.slots
	handed int              // datagrams that its connection has and that are not done

	pin    *pin             // the socket that it leads to, see meant.go
	asks   *txMsg           // on its way to find out which that is; the others wait
	pieces int              // of operations, that its connection has and that are not done
	paused lists.Link[slot] // peer.paused, while messages wait for one of these
	gone   lists.Link[slot] // pending.gone

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
	congestedAt                    int64 // since when it is, or since the planned restart
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
	sl := &slot{idx: d.Slot, sock: s, cell: ce, addr: addr, port: d.Port, leads: leads{way: &ds.nowhere}, sends: sends{pin: newPin(d.Flags)}}
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

// leadTo puts sl on l instead of the list it was on, nil: on none.
func (sl *slot) leadTo(l *audience) {
	if sl.lead != nil {
		sl.lead.Del(&sl.inLead)
	}
	if sl.lead = l; l != nil {
		l.Add(&sl.inLead, sl)
	}
}

// queue has t wait in sl, its destination, behind the others.
func (sl *slot) queue(t *txMsg) {
	sl.q.Add(&t.inQ, t)
	sl.countQueued(t.sum.Datagrams)
}

// unqueue ends that, if t waits.
func (sl *slot) unqueue(t *txMsg) {
	if t.inQ.On() {
		sl.q.Del(&t.inQ)
		sl.countQueued(-t.sum.Datagrams)
	}
}

// countQueued counts n more datagrams that wait in sl, also at the peer that sl leads to.
func (sl *slot) countQueued(n int) {
	sl.queued += n
	if p, is := sl.way.(*peer); is {
		p.waiting += n
	}
}

// leadBy has sl, and what waits in it, lead by w.
func (sl *slot) leadBy(w transport) {
	n := sl.queued
	sl.countQueued(-n)
	sl.way = w
	sl.countQueued(n)
}

// closeSlot ends a destination. Messages to a peer go on, others are withdrawn. Those of a socket
// that ends were withdrawn before.
func (ds *destinations) closeSlot(sl *slot) {
	e := ds.e
	if sl.closed {
		return
	}
	sl.closed = true
	sl.leadTo(nil)
	sl.way.left(sl)
	switch {
	case sl.sock.closed:
		sl.sock.cl.pendNote.Del(&sl.pend)
	case sl.pend.On() && sl.sock.cl.crowded():
		e.clients.foldNotices(sl)
	} // else what it has to tell is still told
	sl.sock.cl.gone.Del(&sl.gone)
	sl.sock.cl.slots[sl.idx] = nil
	sl.sock.slots.Del(&sl.inSock)
	sl.sock.cl.table.Slot(sl.idx).StoreGen(0)
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
