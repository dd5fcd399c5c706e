package daemon

import (
	"net/netip"

	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/internal/shm"
)

// slot is a destination (address and port) of one socket.
type slot struct {
	cl     *client
	idx    uint32
	sock   *socket
	cell   *cell
	addr   netip.Addr
	port   uint16
	peer   *peer  // nil: same host, or no room for one more peer
	local  *local // nil: another host
	home   link[slot]
	closed bool

	nextP, prevP *slot // in peer.slots

	// Same host: messages in order, waiting for their copies or for the
	// destination socket.
	q      queue[txMsg, *txMsg]
	copied uint64 // bytes of the head operation already copied
	inJobs bool
	waitOn *socket // refused there; resumes when it has room

	// Notices not yet told.
	lost, nosock, down, up uint64
	relief                 bool
	inPend                 bool
}

// cell counts the operations of one socket towards one address.
type cell struct {
	idx    uint32
	sock   *socket
	addr   netip.Addr
	mark   barrier.Mark
	inPend bool
	raised bool // in cl.raised
}

// live reports whether the cell is still that of its socket: the client may use
// it for another one from the moment the socket is closed.
func (ce *cell) live() bool { return !ce.sock.closed }

// openSlot handles KindOpenDest.
func (e *Engine) openSlot(c *client, d *shm.SubDest) {
	s := c.sock(d.Sock)
	if s == nil {
		return // closed meanwhile
	}
	if d.Slot >= uint32(len(c.slots)) || d.Cell >= uint32(len(c.cells)) || c.slots[d.Slot] != nil {
		e.kill(c, "open destination: slot %d or cell %d out of range or in use", d.Slot, d.Cell)
		return
	}
	addr := netip.AddrFrom16(d.Addr).Unmap()
	if !mayBePeer(s.local, addr) || d.Gen == 0 {
		e.kill(c, "open destination: bad address %v", addr)
		return
	}
	ce := c.cells[d.Cell]
	switch {
	case ce == nil || ce.sock.closed:
		ce = &cell{idx: d.Cell, sock: s, addr: addr}
		c.cells[d.Cell] = ce
		c.table.Cell(d.Cell).StoreHWM(0)
	case ce.sock != s || ce.addr != addr:
		e.kill(c, "open destination: cell %d belongs to another destination", d.Cell)
		return
	}
	sl := &slot{cl: c, idx: d.Slot, sock: s, cell: ce, addr: addr, port: d.Port}
	t := c.table.Slot(d.Slot)
	if l := e.locals[addr]; l != nil {
		sl.local = l
		t.StoreCongested(b2u(l.cong.Test(d.Port)))
		l.slots = append(l.slots, sl)
	} else if !e.findHome(sl) {
		t.StoreCongested(1)
		e.homeless.add(&sl.home, sl)
		e.homeAt = e.now + homeRetryNs
		e.armTimer(e.homeAt)
	}
	c.slots[d.Slot] = sl
	s.slots = append(s.slots, sl)
	t.StoreGen(d.Gen)
}

// homeRetryNs: how often to look for room for one more peer.
const homeRetryNs = 10_000_000

// findHome leads sl to its peer; false: there are too many.
func (e *Engine) findHome(sl *slot) bool {
	p, err := e.peer(sl.sock.local, sl.addr)
	if err != nil {
		return false
	}
	sl.peer = p
	sl.nextP = p.slots
	if p.slots != nil {
		p.slots.prevP = sl
	}
	p.slots = sl
	t := sl.cl.table.Slot(sl.idx)
	t.StoreState(uint32(p.c.State()))
	e.setSlotCongested(sl, p.c.RemoteCong().Test(sl.port))
	return true
}

// findHomes leads destinations that found too many peers to theirs, if there is
// room now. Until then they are congested, and what was sent before the client
// saw that waits, as it does for any host that cannot be reached.
func (e *Engine) findHomes() {
	if e.homeAt == 0 || e.now < e.homeAt {
		e.armTimer(e.homeAt)
		return
	}
	e.homeAt = 0
	for n := e.homeless.head; n != nil; n = e.homeless.head {
		sl := n.of
		if !e.findHome(sl) {
			e.homeAt = e.now + homeRetryNs
			e.armTimer(e.homeAt)
			return
		}
		e.homeless.del(n)
		for t := sl.q.pop(); t != nil; t = sl.q.pop() {
			e.route(t)
		}
	}
}

// closeSlot ends a destination: queued same-host messages are withdrawn;
// messages on a connection go on.
func (e *Engine) closeSlot(sl *slot) {
	if sl.closed {
		return
	}
	sl.closed = true
	e.cancelLocal(sl)
	if sl.local != nil {
		sl.local.slots = remove(sl.local.slots, sl)
	}
	e.homeless.del(&sl.home)
	if p := sl.peer; p != nil {
		if sl.prevP != nil {
			sl.prevP.nextP = sl.nextP
		} else {
			p.slots = sl.nextP
		}
		if sl.nextP != nil {
			sl.nextP.prevP = sl.prevP
		}
		sl.nextP, sl.prevP = nil, nil
		e.dropIfNew(p)
	}
	sl.cl.slots[sl.idx] = nil
	sl.sock.slots = remove(sl.sock.slots, sl)
	sl.cl.table.Slot(sl.idx).StoreGen(0)
}

// sock returns the live socket with index i, or nil.
func (c *client) sock(i uint32) *socket {
	if i < uint32(len(c.socks)) {
		return c.socks[i]
	}
	return nil
}

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
