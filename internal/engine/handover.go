package engine

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
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

// handing is an engine that is being written.
type handing struct {
	*Engine
	w     *handover.Writer
	name  func(*Client) uint32
	procs numbered[Client, *Client]
	socks numbered[socket, *socket]
	cells numbered[cell, *cell]
	slots numbered[slot, *slot]
	pins  numbered[pin, *pin]
	txs   numbered[txMsg, *txMsg]
	parts numbered[piece, *piece]
}

// taking is an engine that is being made from a state.
type taking struct {
	*Engine
	r       *handover.Reader
	heir    Heir
	procs   []*Client
	names   map[*Client]uint32
	socks   []*socket
	cells   []*cell
	slots   []*slot
	pins    []*pin
	txs     []*txMsg
	msgs    []*conn.Msg // by number
	sources map[[16]byte]*[16]byte
	away    []away
	untold  map[*Client]int   // messages in its arena that it has not been told of
	used    map[*rxEntry]bool // those that wait for room
	found   []bool            // of msgs: a connection has it
}

// Encode writes what an engine needs that takes this one's place. The engine is Halted.
// number names a client for the Heir. handover.Faults are errors in what single clients have.
func (e *Engine) Encode(w *handover.Writer, number func(*Client) uint32) error {
	if !e.Halted() {
		return errMoving
	}
	e.EndDetached()
	h := &handing{Engine: e, w: w, name: number}
	h.collect()
	for _, s := range h.socks.all {
		if s.cl.dead {
			return errRemains
		}
	}
	if h.tcp != nil {
		if _, late := h.tcp.net.Left(); late > 0 {
			return errAccepted
		}
	}
	w.Begin(handover.TagEngine)
	h.encodeFrame()
	h.encodeAddresses()
	h.encodeClients()
	h.encodeSockets()
	h.encodeRegions()
	h.encodeSlots()
	h.encodeMessages()
	h.encodeArrived()
	h.encodeLists()
	h.part(nil)
	h.fail(e.encodeRemotes(w, h.message))
	w.End()
	w.State().Faulty()
	return w.State().Err()
}

// EndDetached ends all of the processes that were detached while the engine stood still, and
// has others notified. Encode does so, too.
func (e *Engine) EndDetached() {
	e.endAtOnce()
	e.publish()
}

// Adopt has a new engine go on from what Encode wrote. It has its devices and addresses, and
// has not had a turn. It is Halted then, until Resume. After an error it is not to be used;
// neither clients nor peers notice anything of it. handover.Faults are
// errors in what single clients have.
func (e *Engine) Adopt(r *handover.Reader, heir Heir) error {
	if e.now != 0 || e.Halts() || len(e.clients.all)+len(e.peers.all) > 0 {
		return errStarted
	}
	t := &taking{Engine: e, r: r, heir: heir, names: map[*Client]uint32{}, untold: map[*Client]int{}, sources: map[[16]byte]*[16]byte{}}
	e.halt.stage, e.halt.adopted = haltStill, true
	r.Begin(handover.TagEngine)
	for _, part := range []func(){t.adoptFrame, t.adoptAddresses, t.adoptClients, t.adoptSockets, t.adoptRegions, t.adoptSlots,
		t.adoptMessages, t.adoptArrived, t.adoptLists, func() { e.adoptRemotes(r, t.find) }, t.link} {
		if r.Err() != nil {
			break
		}
		t.part(nil)
		part()
		r.Faulty()
	}
	r.End()
	return r.Err()
}

// encodeFrame writes the engine's own values.
func (h *handing) encodeFrame() {
	w := h.w
	h.countAcked()
	for _, p := range h.peers.all {
		h.count(p)
	}
	now, clock := h.now, h.clock
	if mutant.On(mutant.HandoverClock) {
		now, clock = 1, 1
	}
	w.I64(now)
	w.U64(clock)
	w.U64(h.cfg.Instance)
	w.U64(h.peers.sweep.forgotten)
	w.U64(uint64(h.peers.nextKey))
	w.U32(h.keys.numbered)
	w.Bool(h.drains.all)
	_, drained := h.Drains()
	if mutant.On(mutant.HandoverDrains) {
		drained = nil
	}
	w.Count(len(drained))
	for _, a := range drained {
		w.Addr(a)
	}
	sum := reflect.ValueOf(&h.counts.sum).Elem()
	w.Count(sum.NumField())
	for i := range sum.NumField() {
		w.U64(sum.Field(i).Uint())
	}
}

func (t *taking) adoptFrame() {
	r := t.r
	t.now, t.clock = r.I64(), r.U64()
	t.cfg.Instance, t.peers.sweep.forgotten = r.U64(), r.U64()
	t.peers.nextKey, t.keys.numbered = verbs.PeerKey(r.U64()), r.U32()
	t.drains.all = r.Bool()
	if t.now <= 0 || t.cfg.Instance == 0 {
		r.Fail("an engine at %d ns, of instance %d", t.now, t.cfg.Instance)
	}
	for range r.Count(maxDrains, 4) {
		a := r.Addr()
		if !a.IsValid() || t.drains.of[a] {
			r.Fail("%v is drained twice, or is no address", a)
			return
		}
		t.setDrain(a, true)
	}
	sum := reflect.ValueOf(&t.counts.sum).Elem()
	if n := r.Count(sum.NumField(), 8); n != sum.NumField() {
		r.Fail("%d counters of connections, not %d", n, sum.NumField())
	}
	for i := range sum.NumField() {
		sum.Field(i).SetUint(r.U64())
	}
	for _, g := range []stats.Counter{stats.SharedBytes, stats.RegisteredBytes, stats.Regions, stats.CongestedPorts, stats.PeersUp} {
		t.st.C[g] = 0 // computed from what is adopted
	}
}

// mostAddresses bounds the addresses of a host in a state.
const mostAddresses = 1 << 16

func (h *handing) encodeAddresses() {
	h.w.Begin(handover.TagAddresses)
	h.w.Count(len(h.addrs.all))
	for _, l := range h.addrs.all {
		h.w.Addr(l.addr)
		h.w.U64(uint64(l.key))
	}
	h.w.End()
}

// adoptAddresses gives local addresses the keys that they had: regions are granted to these.
// An address that was none before gets another.
func (t *taking) adoptAddresses() {
	r := t.r
	r.Begin(handover.TagAddresses)
	keys := map[netip.Addr]verbs.PeerKey{}
	used := map[verbs.PeerKey]bool{}
	for range r.Count(mostAddresses, 4+8) {
		a, k := r.Addr(), verbs.PeerKey(r.U64())
		if _, twice := keys[a]; twice || !a.IsValid() || k == 0 || k > t.peers.nextKey || used[k] {
			r.Fail("%v with key %d", a, k)
		}
		keys[a], used[k] = k, true
	}
	r.End()
	for _, l := range t.addrs.all {
		k, ok := keys[l.addr]
		if !ok {
			k = t.newKeys()
		}
		l.key = k
	}
}

// collect numbers what the state consists of.
func (h *handing) collect() {
	for _, c := range h.clients.all {
		h.procs.number(c)
		for _, s := range c.socks {
			if s != nil {
				h.collectSocket(s)
			}
		}
		for i := range c.rx {
			if s := c.rx[i].sock; s != nil {
				h.collectSocket(s)
			}
		}
		for _, ce := range c.cells {
			if ce != nil {
				h.collectCell(ce)
			}
		}
		for at := c.pendNote.Head; at != nil; at = at.Next {
			h.collectSlot(at.Of)
		}
		for at := c.pendCells.Head; at != nil; at = at.Next {
			h.collectCell(at.Of)
		}
		h.collectMessages(c)
	}
	for at := h.keys.all.Head; at != nil; at = at.Next {
		h.collectSocket(at.Of.sock)
	}
	for _, t := range h.txs.all {
		if t.long != nil {
			for at := t.long.pieces.Head; at != nil; at = at.Next {
				h.parts.number(at.Of)
			}
		}
	}
}

func (h *handing) collectSocket(s *socket) {
	if h.socks.has(s) {
		return
	}
	h.socks.number(s)
	for at := s.slots.Head; at != nil; at = at.Next {
		h.collectSlot(at.Of)
	}
	if s.folded != nil {
		h.collectSlot(s.folded)
	}
}

func (h *handing) collectCell(ce *cell) {
	h.collectSocket(ce.sock)
	h.cells.number(ce)
}

func (h *handing) collectSlot(sl *slot) {
	if h.slots.has(sl) {
		return
	}
	h.slots.number(sl)
	h.collectCell(sl.cell)
	if sl.pin != nil {
		h.pins.number(sl.pin)
	}
}

// collectMessages numbers c's messages in the order in which they were submitted.
func (h *handing) collectMessages(c *Client) {
	var txs []*txMsg
	for _, t := range c.msgs {
		if t != nil {
			txs = append(txs, t)
		}
	}
	slices.SortFunc(txs, func(a, b *txMsg) int {
		return cmp.Compare(a.nth, b.nth)
	})
	for _, t := range txs {
		h.collectSocket(t.sock)
		h.collectSlot(t.slot)
		h.pins.number(t.pin)
		h.txs.number(t)
	}
}

// at returns the record of number i.
func at[T any](r *handover.Reader, all []*T, i uint32, what string) *T {
	if r.Err() == nil && uint64(i) >= uint64(len(all)) {
		r.Fail("%s %d of %d", what, i, len(all))
	}
	if r.Err() != nil {
		return nil
	}
	return all[i]
}

// source returns the address from which a message came, as records share it.
func (t *taking) source() *[16]byte {
	var a [16]byte
	hi, lo := t.r.U64(), t.r.U64()
	for i := range 8 {
		a[i], a[8+i] = byte(hi>>(56-8*i)), byte(lo>>(56-8*i))
	}
	if t.sources[a] == nil {
		t.sources[a] = &a
	}
	return t.sources[a]
}

func (h *handing) source(a *[16]byte) {
	for _, half := range [2][]byte{a[:8], a[8:]} {
		v := uint64(0)
		for _, b := range half {
			v = v<<8 | uint64(b)
		}
		h.w.U64(v)
	}
}

// sortedBuffers are c's buffers in the order of their ids.
func (c *Client) sortedBuffers() (all []*buffer) {
	for _, id := range slices.Sorted(maps.Keys(c.buffers)) {
		all = append(all, c.buffers[id])
	}
	return all
}
