package rds

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/internal/shm"
)

// dest is an open destination slot: one (socket, address, port). Guarded by
// tx.mu.
type dest struct {
	sock      *Socket
	to        netip.AddrPort
	slot      uint32
	gen       uint32
	cell      *cell
	run       outRun
	pending   int  // message ids submitted and not returned
	datagrams int  // what was submitted with them
	queued    int  // their payload bytes
	counted   int  // those that have any
	mem       int  // send memory of those pending
	over      bool // in tx.over
	parked    bool // they are in sock.parked
	place     int  // in sock.busy, while some are pending
	used      bool // since the hand passed (second chance)
	known     bool // it was seen to be open
	shared    *shm.Slot
}

// cell is a barrier cell: the operation ids of one (socket, address). It lives as
// long as its socket, because ids must never start again.
type cell struct {
	idx    uint32
	addr   netip.Addr
	first  *dest     // nil once the daemon has taken the cell in
	last   uint64    // id of the last operation issued
	base   uint64    // id of the last one issued at an earlier daemon, which counts from there
	shared *shm.Cell // nil: the socket is closed, or the daemon does not know the cell
	want   *shm.WantCell
	final  uint64 // the mark while shared is nil
}

// isOpen reports whether the daemon has handled the slot's OpenDest. Until then the
// slot shows the state of its former user.
func (d *dest) isOpen() bool { return d.shared.LoadGen() == d.gen }

// unknown reports whether d must be open before a message is submitted, because the
// daemon may refuse it, and is not open yet. tx.mu is held.
func (t *tx) unknown(d *dest) bool {
	if !d.known && t.asks {
		d.known = d.isOpen()
		return !d.known
	}
	return false
}

// congested reports whether the daemon has published the destination as
// congested.
func (d *dest) congested() bool { return d.shared.LoadCongested() != 0 && d.isOpen() }

// clear reports whether d, which is open, is reached and not congested, and was not at the last look.
func (d *dest) clear() bool {
	return !d.parked && d.shared.LoadCongested()|d.shared.LoadUnreachable() == 0
}

// takesCookie returns errNoRDMA if the daemon has said that d takes no cookies.
func (d *dest) takesCookie() error {
	if d.isOpen() && d.shared.LoadLimits()&shm.SlotNoRDMA != 0 {
		return errNoRDMA
	}
	return nil
}

// hwm returns the highest id up to which all operations are locally complete.
// tx.mu is held.
func (ce *cell) hwm() uint64 {
	if ce.shared == nil {
		return ce.final
	}
	if ce.first != nil {
		if !ce.first.isOpen() {
			return ce.base
		}
		ce.first = nil
	}
	return ce.base + ce.shared.LoadHWM()
}

// reached compares by signed difference, as the design of the kernel does.
func reached(hwm, id uint64) bool { return int64(hwm-id) >= 0 }

// dest returns the slot of s for the destination to. It opens one if there is none;
// the opening is submitted together with the message that follows it. tx.mu is held.
func (t *tx) dest(s *Socket, to netip.AddrPort) (*dest, error) {
	if d := s.lastDest; d != nil && d.to == to {
		return d, nil
	}
	d := s.nearest(&to)
	if d == nil {
		d = s.dests[to]
	}
	if d == nil {
		var err error
		if d, err = t.open(s, to); err != nil {
			return nil, err
		}
	}
	d.used = true
	if s.lastDest = d; len(s.near) > 0 {
		s.near[s.nearAt(&to)] = d
	}
	return d, nil
}

// mostNear is how many destinations of a socket are found without a look into its map.
const mostNear = 1024

// nearAt is the place of to in near. A host's ports and a network's hosts follow one another, so
// their lowest bits spread them. As16 is for IPv6 alone: its result is read in a wider word than it was
// written in, and such a read waits for all stores before it, the commit of the run before among them.
func (s *Socket) nearAt(to *netip.AddrPort) int {
	var host, net byte
	if a := to.Addr(); a.Is4() {
		b := a.As4()
		host, net = b[3], b[2]
	} else {
		b := a.As16()
		host, net = b[15], b[14]
	}
	return (int(to.Port()) + 61*int(host) + 7*int(net)) & (len(s.near) - 1)
}

// nearest returns the open destination to, or nil if it has to be looked up. near has one place
// for each of the destinations with the same nearAt: the last that was looked up.
func (s *Socket) nearest(to *netip.AddrPort) *dest {
	if len(s.near) == 0 {
		return nil
	}
	if d := s.near[s.nearAt(to)]; d != nil && d.to == *to {
		return d
	}
	return nil
}

// widen gives near a place for each destination, and some to spare.
func (s *Socket) widen() {
	if n := min(len(s.dests), mostNear); n > 1 && len(s.near) < n {
		s.near = make([]*dest, 1<<bits.Len(uint(2*n-2)))
	}
}

// openAhead opens the destinations of ms, of which the first that cannot be opened is left to its
// own send. So a batch waits for the daemon once, however many destinations it opens. tx.mu is held.
func (t *tx) openAhead(s *Socket, ms []Message) {
	for i := range ms {
		if _, err := t.dest(s, normal(ms[i].Addr)); err != nil {
			return
		}
	}
}

func (t *tx) open(s *Socket, to netip.AddrPort) (*dest, error) {
	if err := s.checkDest(to); err != nil {
		return nil, err
	}
	flags := uint8(0)
	switch {
	case s.anybody && t.anybody:
		flags = shm.DestAnybody
	case s.anybody && !s.orMeets:
		return nil, errAnybody
	}
	// What follows an opening never finds the ring full.
	if !t.sub.FreeAtLeast(openEntries) {
		return nil, errRingFull
	}
	ce := s.cells[to.Addr()]
	if (ce == nil || ce.shared == nil) && len(t.cellFree) == 0 {
		return nil, ErrTooManyDestinations
	}
	slot, ok := t.freeSlot()
	if !ok {
		return nil, ErrTooManyDestinations
	}
	t.gen++
	if t.gen == 0 {
		t.gen = 1 // 0 is closed
	}
	if s.dests == nil {
		s.dests, s.cells = map[netip.AddrPort]*dest{}, map[netip.Addr]*cell{}
	}
	d := &dest{sock: s, to: to, slot: slot, gen: t.gen, shared: t.c.table.Slot(slot)}
	if ce == nil {
		ce = &cell{addr: to.Addr()}
		s.cells[to.Addr()] = ce
	}
	if ce.shared == nil {
		ce.idx, ce.first = t.cellFree[len(t.cellFree)-1], d
		t.cellFree = t.cellFree[:len(t.cellFree)-1]
		ce.shared, ce.want = t.c.table.Cell(ce.idx), t.c.seg.WantCell(ce.idx)
		ce.want.StoreArmed(0)
		t.cells[ce.idx] = ce
	}
	d.cell = ce
	t.slots[slot] = d
	s.dests[to] = d
	s.widen()
	t.c.seg.WantSlot(slot).TakeRelief()
	t.c.seg.WantSlot(slot).TakeCrowded()
	*t.sub.Reserve().SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: s.handle, Slot: slot, Cell: ce.idx,
		Port: to.Port(), Lane: s.lane, Flags: flags, Addr: to.Addr().As16(), Gen: d.gen}
	return d, nil
}

// freeSlot returns a slot that was never used, or one whose socket is gone. If there
// is none it closes an idle slot: one without anything pending that was not used
// since the hand passed it last.
func (t *tx) freeSlot() (uint32, bool) {
	if t.nslots < len(t.slots) {
		t.nslots++
		return uint32(t.nslots - 1), true
	}
	t.reap()
	for range 2 * len(t.slots) {
		i := t.hand
		t.hand = (t.hand + 1) % uint32(len(t.slots))
		d := t.slots[i]
		switch {
		case d == nil:
			return i, true
		case d.used:
			d.used = false
		case d.pending == 0 && d.isOpen():
			t.closeDest(d)
			return i, true
		}
	}
	return 0, false
}

func (t *tx) closeDest(d *dest) {
	if d.cell.first == d {
		d.cell.first = nil // it is open, so the daemon knows the cell
	}
	*t.sub.Reserve().SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: d.sock.handle, Slot: d.slot}
	t.forget(d)
	// Nobody announces relief of a closed slot: a sender that waits for it looks
	// again, and opens another.
	t.relieve(d)
}

func (t *tx) forget(d *dest) {
	if d.over {
		t.over = slices.DeleteFunc(t.over, func(x *dest) bool { return x == d })
	}
	t.slots[d.slot] = nil
	delete(d.sock.dests, d.to)
	if d.sock.lastDest == d {
		d.sock.lastDest = nil
	}
	if s := d.sock; s.nearest(&d.to) == d {
		s.near[s.nearAt(&d.to)] = nil
	}
}

// forgetSocket drops all slots and cells of a socket. With answered the daemon has
// closed the socket, behind everything that was submitted, so it has taken back the
// cells.
func (t *tx) forgetSocket(s *Socket, answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range s.dests {
		t.forget(d)
	}
	for _, ce := range s.cells {
		if answered {
			ce.first = nil
		}
		if ce.shared != nil {
			ce.freeze()
			t.cells[ce.idx] = nil
			t.cellFree = append(t.cellFree, ce.idx)
		}
	}
}

// freeze keeps the present high-water mark, because the cell in shared memory is
// about to serve another socket or to be unmapped. tx.mu is held.
func (ce *cell) freeze() {
	ce.final = ce.hwm()
	ce.shared, ce.first = nil, nil
}
