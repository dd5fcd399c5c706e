package rds

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// fakeDaemon is the daemon's side of the memory contract for one client, on
// heap memory: it delivers between the client's own sockets, runs operations
// between its buffers, and lets a test hold back what a network would. What it
// must never see from a correct client it reports through broken.
type fakeDaemon struct {
	params shm.Params
	seg    *shm.Segment
	table  *shm.Table
	recv   *shm.Arena
	mem    [][]byte // by pseudo descriptor
	send   [][]byte // windows
	self   *shm.ChanWaiter
	client *shm.ChanWaiter // the client's doorbell
	stop   atomic.Bool
	ended  chan struct{}
	local  netip.Addr
	addrs  []netip.Addr // what it says its addresses are
	gone   chan struct{}

	mu      sync.Mutex
	reason  error
	broken  []string
	scratch shm.Entry
	socks   []*fakeSock
	slots   []*fakeSlot
	cells   map[uint32]*fakeCell
	used    []bool   // message ids
	rx      []fakeRx // by receive id
	rxFree  []uint32
	events  []shm.Entry // no room in the ring yet
	bufs    map[uint32][]byte
	regions map[uint32]*fakeRegion
	nextID  uint32
	rings   int // of the client's doorbell

	// What a test turns.
	told      bool      // events were published and nobody rung for them yet
	holdSends bool      // keep messages: neither delivered nor returned
	holdOps   bool      // keep operations: not locally complete, no status
	keepIDs   bool      // deliver, but do not return ids (no ack)
	held      []fakeMsg // by holdSends, holdOps and unreachable hosts
	unacked   []uint32  // by keepIDs
	noRDMA    bool      // of slots that are opened
	noGrow    bool
	noOpen    bool // of destinations
	grown     int
	features  uint64          // besides ipc.FeatureAddrs
	older     bool            // know nothing of shm.SubNotify and shm.SubTraceparent
	record    bool            // note in taken what is taken in
	taken     []int           // datagrams of each run, 0: a message that is none
	steps     []uint32        // receive ids of which a part came back
	callHook  func(any) error // runs before each request, without mu
}

type fakeSock struct {
	handle      uint32
	lane        uint8
	dests       int // opened ever
	flags       uint8
	addr        netip.AddrPort
	limit, used int
	inc         uint32
	congested   bool
	closed      bool
}

type fakeSlot struct {
	idx  uint32
	sock *fakeSock
	to   netip.AddrPort
	cell *fakeCell
}

type fakeCell struct {
	idx  uint32
	sock *fakeSock
	addr netip.Addr
	last uint64
	done map[uint64]bool
	hwm  uint64
}

type fakeRegion struct {
	mem    []byte
	cookie uint64
	access abi.Rights
}

func heap(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

func newFakeDaemon(want Params) *fakeDaemon {
	p := want.fill()
	d := &fakeDaemon{params: p, features: ipc.FeatureNotify | ipc.FeatureAnybody, self: shm.NewChanWaiter(nil), client: shm.NewChanWaiter(nil), ended: make(chan struct{}),
		gone: make(chan struct{}), local: netip.MustParseAddr("127.0.0.1"), recv: shm.NewArena(),
		cells: map[uint32]*fakeCell{}, bufs: map[uint32][]byte{}, regions: map[uint32]*fakeRegion{}, nextID: 1}
	seg := heap(shm.SegmentSize(p))
	table := heap(shm.TableSize(p.Slots, p.Cells))
	var err error
	if d.seg, err = shm.NewSegment(seg, p); err != nil {
		panic(err)
	}
	d.table = shm.NewTable(table, p.Slots, p.Cells)
	d.mem = append(d.mem, seg, table, nil, nil)
	for range p.SendWindows {
		w := heap(shm.WindowSize)
		d.send, d.mem = append(d.send, w), append(d.mem, w)
	}
	for range p.RecvWindows {
		w := heap(shm.WindowSize)
		d.recv.AddWindow(w)
		d.mem = append(d.mem, w)
	}
	d.slots = make([]*fakeSlot, p.Slots)
	d.used = make([]bool, p.MaxMsgs)
	d.rx = make([]fakeRx, p.MaxRx)
	for i := range d.rx {
		d.rxFree = append(d.rxFree, p.MaxRx-1-uint32(i))
	}
	go d.run()
	return d
}

// run is the daemon's engine.
func (d *fakeDaemon) run() {
	defer close(d.ended)
	asleep := d.seg.DaemonAsleep()
	for !d.stop.Load() {
		if d.lockedTurn() {
			continue
		}
		asleep.Store(shm.Asleep)
		if d.noRoom() {
			asleep.Store(shm.AsleepForRoom)
		}
		if d.lockedTurn() {
			asleep.Store(0)
			continue
		}
		d.self.Wait(0)
		asleep.Store(0)
	}
}

// noRoom reports that events wait for room in their ring.
func (d *fakeDaemon) noRoom() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.events) > 0
}

func (d *fakeDaemon) lockedTurn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.turn()
}

// do runs f as the engine would, and publishes.
func (d *fakeDaemon) do(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.turn() {
	}
	f()
	d.turn()
	d.publish()
}

func (d *fakeDaemon) bad(what string) { d.broken = append(d.broken, what) }

// turn takes in what the client submitted and returned. mu is held.
func (d *fakeDaemon) turn() bool {
	work := false
	sub, ret := d.seg.SubConsumer(), d.seg.RecvRetConsumer()
	for sub.Next(&d.scratch) {
		d.handle(sub)
		work = true
	}
	sub.Release()
	for {
		id, ok := ret.Take()
		if !ok {
			break
		}
		d.takeBack(id)
		work = true
	}
	ret.Release()
	for len(d.events) > 0 {
		e := d.seg.EventProducer().Reserve()
		if e == nil {
			break
		}
		*e = d.events[0]
		d.events = d.events[1:]
		work = true
	}
	if work {
		d.publish()
	}
	return work
}

func (d *fakeDaemon) publish() {
	wake := shm.WakeForReturns
	if d.told || d.seg.EventProducer().Pending() {
		wake, d.told = shm.WakeNeeded, false
	}
	d.seg.EventProducer().Publish()
	d.seg.SendRetProducer().Publish()
	if wake(d.seg.ClientAsleep()) {
		d.rings++
		d.client.Ring()
	}
}

func (d *fakeDaemon) event(e shm.Entry) { d.events = append(d.events, e) }

func (d *fakeDaemon) handle(sub *shm.Consumer) {
	switch shm.Kind(d.scratch.Kind()) {
	case shm.KindSend, shm.KindRun:
		d.submit(*d.scratch.Sub(), nil)
	case shm.KindSendOp:
		s, ops := *d.scratch.Sub(), make([]shm.SubOp, 1, 2)
		if s.Flags&shm.SubTwoOps != 0 {
			ops = ops[:2]
		}
		for i := range ops {
			if !sub.Next(&d.scratch) {
				d.bad("operation descriptor missing")
				return
			}
			ops[i] = *d.scratch.SubOp()
		}
		if len(ops) == 2 && (isAtomic(&ops[0]) || !isAtomic(&ops[1])) {
			d.bad("two operations that are not an RDMA operation and an atomic")
		}
		d.submit(s, ops)
	case shm.KindOpenDest:
		if !d.noOpen {
			d.openDest(d.scratch.SubDest())
		}
	case shm.KindCloseDest:
		i := d.scratch.SubDest().Slot
		if d.slots[i] == nil {
			d.bad("close of a closed slot")
			return
		}
		d.table.Slot(i).StoreGen(0)
		d.slots[i] = nil
	case shm.KindCancel:
		sl := d.slots[d.scratch.Sub().Slot]
		d.release(func(m *fakeMsg) bool { return m.slot == sl }, func(m fakeMsg) { d.end(m, abi.StatusCanceled, 0) })
	default:
		d.bad("unknown descriptor")
	}
}

func (d *fakeDaemon) openDest(x *shm.SubDest) {
	s := d.sock(x.Sock)
	if s.closed {
		return
	}
	if d.slots[x.Slot] != nil || x.Gen == 0 {
		d.bad("open of an open slot")
		return
	}
	if s.dests++; s.dests > 1 && s.lane != x.Lane {
		d.bad("two lanes of one socket")
	}
	s.lane, s.flags = x.Lane, x.Flags
	to := netip.AddrPortFrom(netip.AddrFrom16(x.Addr).Unmap(), x.Port)
	ce := d.cells[x.Cell]
	if ce == nil || ce.sock.closed {
		ce = &fakeCell{idx: x.Cell, sock: s, addr: to.Addr(), done: map[uint64]bool{}}
		d.cells[x.Cell] = ce
		d.table.Cell(x.Cell).StoreHWM(0)
	} else if ce.sock != s || ce.addr != to.Addr() {
		d.bad("cell of another destination")
		return
	}
	d.slots[x.Slot] = &fakeSlot{idx: x.Slot, sock: s, to: to, cell: ce}
	cong := uint32(0)
	if t := d.bound(to); t != nil && t.congested {
		cong = 1
	}
	d.table.Slot(x.Slot).StoreCongested(cong)
	limits := shm.SlotLimits(0)
	if d.noRDMA {
		limits = shm.SlotNoRDMA
	}
	d.table.Slot(x.Slot).StoreLimits(limits)
	d.table.Slot(x.Slot).StoreGen(x.Gen)
}

// sock returns the socket with a handle, a closed one if it is another's now.
func (d *fakeDaemon) sock(handle uint32) *fakeSock {
	if s := d.socks[shm.SockIndex(handle)]; s.handle == handle {
		return s
	}
	return &fakeSock{handle: handle, closed: true}
}

func (d *fakeDaemon) bound(to netip.AddrPort) *fakeSock {
	for _, s := range d.socks {
		if s != nil && !s.closed && s.addr == to {
			return s
		}
	}
	return nil
}

func (d *fakeDaemon) notice(sl *fakeSlot, kind uint8, count uint64) {
	n := &shm.EventNotice{Kind: shm.EvNotice, Notice: kind, Port: sl.to.Port(), Sock: sl.sock.handle, Slot: sl.idx, Count: count,
		Addr: sl.to.Addr().As16()}
	d.event(*(*shm.Entry)(unsafe.Pointer(n)))
}

// at is memory of the send arena.
func (d *fakeDaemon) at(chunk uint32, n int) []byte {
	off := int(chunk) * shm.Unit
	return d.send[off/shm.WindowSize][off%shm.WindowSize:][:n]
}

// end returns m's id and settles its operations: status first, then the mark.
func (d *fakeDaemon) end(m fakeMsg, status abi.Status, errno uint32) {
	d.settle(m, status, errno)
	d.localDone(m)
	if d.keepIDs {
		d.unacked = append(d.unacked, m.sub.MsgID)
		return
	}
	d.ack(m.sub.MsgID)
}

func (d *fakeDaemon) flushEvents() {
	for len(d.events) > 0 {
		e := d.seg.EventProducer().Reserve()
		if e == nil {
			break
		}
		*e = d.events[0]
		d.events = d.events[1:]
		d.told = true
	}
	d.seg.EventProducer().Publish()
}

func (d *fakeDaemon) setCongested(t *fakeSock, on bool) {
	t.congested = on
	for _, sl := range d.slots {
		if sl != nil && sl.to == t.addr {
			d.setSlotCongested(sl, on)
		}
	}
}

func (d *fakeDaemon) setSlotCongested(sl *fakeSlot, on bool) {
	v := uint32(0)
	if on {
		v = 1
	}
	d.table.Slot(sl.idx).StoreCongested(v)
	want, kind := d.seg.WantSlot(sl.idx), shm.EvRelief
	if on {
		kind = shm.EvCrowded
	}
	if !on && want.TakeRelief() || on && want.TakeCrowded() {
		n := &shm.EventNotice{Kind: kind, Port: sl.to.Port(), Sock: sl.sock.handle, Slot: sl.idx, Addr: sl.to.Addr().As16()}
		d.event(*(*shm.Entry)(unsafe.Pointer(n)))
	}
}
