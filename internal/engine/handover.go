package engine

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sort"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
)

// An engine that stands still is handed over in sections, see docs/adr/0030. The sections of
// users and processes come first (handoverclient.go to handovermsg.go), then those of hosts
// (handoverpeers.go). A record names another by its number, which is its place among all
// records of its kind in the state.

var (
	errMoving   = errors.New("engine: handed over before it stands still")
	errRemains  = errors.New("engine: handed over with something of a process that has ended")
	errAccepted = errors.New("engine: connections by RDS/TCP were accepted while it stood still")
	errStarted  = errors.New("engine: adopts after it has begun to work")
)

// crossing is an engine that goes over: one that is written, or one that is made from a state.
type crossing struct {
	*Engine
	s     *handover.State
	procs handover.Records[Client, *Client]
	socks handover.Records[socket, *socket]
	cells handover.Records[cell, *cell]
	slots handover.Records[slot, *slot]
	pins  handover.Records[pin, *pin]
	txs   handover.Records[txMsg, *txMsg]
	parts handover.Records[piece, *piece]

	flattened bool             // some messages go over from their arenas into overflow
	overBytes int              // of all there
	overOf    map[*account]int // what those of each user take of windows

	// Of an engine that is made:
	heir    Heir
	msgs    []crossed // by number: pieces follow whole messages
	sources map[[16]byte]*[16]byte
	away    []away
	used    map[*rxEntry]bool // those that wait for room
}

// crossed is a client's message, or a piece of one, that a connection may have had.
type crossed struct {
	m     *msg.Msg
	found bool // a connection has it
}

// Encode writes what an engine needs that takes this one's place. The engine is Halted.
// number names a client for the Heir. handover.Faults are errors in what single clients have.
func (e *Engine) Encode(s *handover.State, number func(*Client) uint32) error {
	if !e.Halted() {
		return errMoving
	}
	e.EndDetached()
	x := &crossing{Engine: e, s: s}
	x.collect()
	for _, so := range x.socks.All {
		if so.cl.dead {
			return errRemains
		}
	}
	if e.tcp != nil {
		if _, late := e.tcp.net.Left(); late > 0 {
			return errAccepted
		}
	}
	for _, c := range x.procs.All {
		c.session = number(c)
	}
	x.handOver()
	s.Faulty()
	return s.Err()
}

// EndDetached ends all of the processes that were detached while the engine stood still, and
// has others notified. Encode does so, too.
func (e *Engine) EndDetached() {
	e.clients.endAtOnce()
	e.publish()
}

// Adopt has a new engine go on from what Encode wrote. It has its devices and addresses, and
// has not had a turn. It is Halted then, until Resume. After an error it is not to be used;
// neither clients nor peers notice anything of it. handover.Faults are
// errors in what single clients have.
func (e *Engine) Adopt(s *handover.State, heir Heir) error {
	if e.now != 0 || e.Halts() || len(e.clients.all)+len(e.peers.all) > 0 {
		return errStarted
	}
	x := &crossing{Engine: e, s: s, heir: heir, used: map[*rxEntry]bool{}, sources: map[[16]byte]*[16]byte{}}
	e.halt.stage, e.halt.adopted = haltStill, true
	x.handOver()
	return s.Err()
}

// handOver has the engine go over. One that is made stops at the first section with an error, and goes through
// all processes of a section before.
func (x *crossing) handOver() {
	s := x.s
	s.Begin(handover.TagEngine)
	x.handOverFrame()
	x.section(handover.TagAddresses, x.handOverAddresses)
	x.section(handover.TagClients, x.handOverClients)
	x.section(handover.TagSockets, func() {
		each(x, x.socks.All, mostSocks, 4+4+4+2+4+1+2, x.handOverSocket)
		x.made(x.checkSockets)
	})
	x.section(handover.TagRegions, func() {
		each(x, elements(&x.keys.all), maxRegions, 4+4+4+4+8+8+4+4+2+4, x.handOverRegion)
		x.made(x.register)
	})
	x.section(handover.TagSlots, func() {
		each(x, x.cells.All, mostSlots, 4+4+4+1+6*8, x.handOverCell)
		each(x, x.pins.All, mostSlots, 8+4+2+8, x.handOverPin)
		each(x, x.slots.All, mostSlots, 4+4+4+4+2+4+2+1+1+8*8, x.handOverSlot)
	})
	x.section(handover.TagMessages, x.handOverMessages)
	x.section(handover.TagArrived, x.handOverArrived)
	x.section(handover.TagUsers, x.handOverLists)
	x.section(handover.TagRemotes, x.handOverRemotes)
	x.made(x.link)
	s.End()
}

// section has a section go over, unless one of those ahead of it has an error.
func (x *crossing) section(t handover.Tag, both func()) {
	if x.s.Reads() && x.s.Faulty() {
		return
	}
	x.s.Begin(t)
	both()
	x.part(nil)
	x.s.End()
}

// made calls f if what went over so far was read, without an error.
func (x *crossing) made(f func()) {
	if x.s.Reads() && !x.s.Faulty() {
		x.part(nil)
		f()
	}
}

// handOverFrame has the engine's own values go over.
func (x *crossing) handOverFrame() {
	s := x.s
	if !s.Reads() {
		x.watch.countAcked()
		for _, p := range x.peers.all {
			x.watch.count(p)
		}
	}
	s.I64(&x.now)
	s.U64(&x.clock)
	s.U64(&x.cfg.Instance)
	s.U64(&x.peers.sweep.forgotten)
	s.U64((*uint64)(&x.peers.nextKey))
	s.U32(&x.keys.numbered)
	s.Bool(&x.drains.all)
	if x.now <= 0 || x.cfg.Instance == 0 {
		s.Fail("an engine at %d ns, of instance %d", x.now, x.cfg.Instance)
	}
	_, drained := x.Drains()
	for i := range s.Count(len(drained), maxDrains, 4) {
		a := handover.Nth(s, drained, i)
		if s.Addr(&a); !s.Reads() {
			continue
		}
		if !a.IsValid() || x.drains.of[a] {
			s.Fail("%v is drained twice, or is no address", a)
			return
		}
		x.drains.setDrain(a, true)
	}
	if s.Counters(&x.watch.counts.sum); !s.Reads() {
		return
	}
	for _, g := range []stats.Counter{stats.SharedBytes, stats.RegisteredBytes, stats.Regions, stats.CongestedPorts, stats.PeersUp} {
		x.st.C[g] = 0 // computed from what is adopted
	}
}

// mostAddresses bounds the addresses of a host in a state.
const mostAddresses = 1 << 16

// handOverAddresses gives local addresses the keys that they had: regions are granted to these.
// An address that was none before gets another.
func (x *crossing) handOverAddresses() {
	s := x.s
	keys := map[netip.Addr]verbs.PeerKey{}
	used := map[verbs.PeerKey]bool{}
	for i := range s.Count(len(x.addrs.all), mostAddresses, 4+8) {
		var a netip.Addr
		var k verbs.PeerKey
		if !s.Reads() {
			a, k = x.addrs.all[i].addr, x.addrs.all[i].key
		}
		s.Addr(&a)
		s.U64((*uint64)(&k))
		if _, twice := keys[a]; twice || !a.IsValid() || k == 0 || k > x.peers.nextKey || used[k] {
			s.Fail("%v with key %d", a, k)
		}
		keys[a], used[k] = k, true
	}
	if !s.Reads() {
		return
	}
	for _, l := range x.addrs.all {
		k, ok := keys[l.addr]
		if !ok {
			k = x.keys.newKeys()
		}
		l.key = k
	}
}

// collect numbers what the state consists of.
func (x *crossing) collect() {
	for _, c := range x.clients.all {
		x.procs.Number(c)
		for _, s := range c.socks {
			if s != nil {
				x.collectSocket(s)
			}
		}
		for i := range c.rx {
			if s := c.rx[i].sock; s != nil {
				x.collectSocket(s)
			}
		}
		for _, ce := range c.cells {
			if ce != nil {
				x.collectCell(ce)
			}
		}
		for at := c.pendNote.Head; at != nil; at = at.Next {
			x.collectSlot(at.Of)
		}
		for at := c.pendCells.Head; at != nil; at = at.Next {
			x.collectCell(at.Of)
		}
		x.collectMessages(c)
	}
	for at := x.keys.all.Head; at != nil; at = at.Next {
		x.collectSocket(at.Of.sock)
	}
}

func (x *crossing) collectSocket(s *socket) {
	if x.socks.Has(s) {
		return
	}
	x.socks.Number(s)
	for at := s.slots.Head; at != nil; at = at.Next {
		x.collectSlot(at.Of)
	}
	if s.folded != nil {
		x.collectSlot(s.folded)
	}
}

func (x *crossing) collectCell(ce *cell) {
	x.collectSocket(ce.sock)
	x.cells.Number(ce)
}

func (x *crossing) collectSlot(sl *slot) {
	if x.slots.Has(sl) {
		return
	}
	x.slots.Number(sl)
	x.collectCell(sl.cell)
	if sl.pin != nil {
		x.pins.Number(sl.pin)
	}
}

// submitted is a message with what says where it is collected.
type submitted struct {
	t    *txMsg
	nth  uint64
	slot *slot
	pin  *pin
	long bool
}

// inOrder sorts messages as they were submitted. (slices.SortFunc of them would be 20 KiB of the program.)
type inOrder []submitted

func (l inOrder) Len() int           { return len(l) }
func (l inOrder) Less(i, j int) bool { return l[i].nth < l[j].nth }
func (l inOrder) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }

// collectMessages collects c's messages in the order in which they were submitted. They get their numbers
// when they are written: each look at a message costs about as much as writing it.
func (x *crossing) collectMessages(c *Client) {
	n := 0
	for _, t := range c.msgs {
		if t != nil {
			n++
		}
	}
	all := make(inOrder, 0, n)
	for _, t := range c.msgs {
		if t != nil {
			all = append(all, submitted{t, t.nth, t.slot, t.pin, t.long != nil})
		}
	}
	sort.Sort(all)
	x.txs.All = slices.Grow(x.txs.All, n)
	last := submitted{}
	for _, m := range all {
		if m.slot != last.slot || m.pin != last.pin { // else they were collected
			x.collectSocket(m.slot.sock)
			x.collectSlot(m.slot)
			x.pins.Number(m.pin)
		}
		x.txs.All = append(x.txs.All, m.t)
		if last = m; m.long {
			for at := m.t.long.pieces.Head; at != nil; at = at.Next {
				x.parts.Number(at.Of)
			}
		}
	}
}

// handOverSource has the address from which a message came go over, as records share it.
func (x *crossing) handOverSource(from **[16]byte) {
	var a [16]byte
	if !x.s.Reads() {
		a = **from
	}
	for _, half := range [...][]byte{a[:8], a[8:]} {
		v := binary.BigEndian.Uint64(half)
		x.s.U64(&v)
		binary.BigEndian.PutUint64(half, v)
	}
	if !x.s.Reads() {
		return
	}
	if x.sources[a] == nil {
		own := a
		x.sources[a] = &own
	}
	*from = x.sources[a]
}

// number returns the number of a client's message that a connection has.
func (x *crossing) number(m *msg.Msg) uint32 {
	switch o := m.Owner.(type) {
	case *txMsg:
		if x.txs.Has(o) {
			return x.txs.Number(o)
		}
	case *piece:
		if x.parts.Has(o) {
			return uint32(len(x.txs.All)) + x.parts.Number(o)
		}
	}
	return handover.NoNumber
}

// sortedBuffers are c's buffers in the order of their ids.
func (c *Client) sortedBuffers() (all []*buffer) {
	for _, id := range lists.Sorted(maps.Keys(c.buffers)) {
		all = append(all, c.buffers[id])
	}
	return all
}

// No process decides about a planned restart. An error in what one process has is a
// handover.Fault of it, in the engine that is handed over and in the one that takes over: the
// process ends by Expel, and the hand-over begins anew. An error of a part that is shared, and what
// the engine that takes over lacks (addresses, memory, a device's resources), is none.

// part says whose part goes over from here on, nil: a part that is shared.
func (x *crossing) part(c *Client) {
	if c == nil {
		x.s.Shared()
		return
	}
	x.s.Of(c.session)
}
