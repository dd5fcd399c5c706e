// Package sim is an RDMA provider in memory and in virtual time, for tests. One
// Network holds all hosts, their devices and their connections. Its owner runs it
// event by event. Faults are drawn from a seed, or placed by a hook.
//
// A connection that lives loses, repeats and reorders nothing, as RC demands. What
// may happen is what RC allows: delays; a break at any point, before or after the
// remote side acted, with either end learning late; a failing set-up; a failing
// post; a crashing host.
//
// Memory changes at an event's virtual time. A SEND or WRITE reads its source when
// it is transmitted and is placed when it is delivered. A READ reads at the
// responder and is placed when its response arrives. Between ToError and the flush
// completions buffers may still be touched, and with Timing.LetGo memory of a region
// that has ended until Untouched says so; afterwards never.
//
// Everything runs on one goroutine. The same seed and the same calls make the same
// run; TraceHash shows it.
//
// Not covered by docs/stability.md: any release may change this package.
package sim

import (
	"net/netip"

	"github.com/rdsd/rdsd/verbs"
)

// Network is a set of hosts, a clock and the events to come.
type Network struct {
	// Timing, Faults and Hook may be changed at any time; Attr holds for
	// devices made afterwards.
	Timing Timing
	Faults Faults
	// Hook, if not nil, is asked at every Point and can order a fault there.
	// It must not call into the network.
	Hook func(Point) Action
	Attr verbs.DeviceAttr

	now    int64
	events eventHeap
	seq    uint64
	trace  uint64
	seed   uint64
	rand   streams
	hosts  map[netip.Addr]*host // looked up, never ranged over
	qps    uint32
	bufs   bufPool

	holes     map[pathKey]bool // looked up, never ranged over
	swallowed []func()         // news that fell into them
}

// host is an address that a device can live on.
type host struct {
	dev *Device // nil: none yet, or closed
	up  bool
}

// NewNetwork returns an empty network at time 0 without faults.
func NewNetwork(seed uint64) *Network {
	n := &Network{Timing: DefaultTiming(), Attr: DefaultAttr(), seed: seed, hosts: map[netip.Addr]*host{}, qps: 0x100}
	n.rand.init(seed)
	return n
}

// DefaultAttr returns the attributes of devices on a new network.
func DefaultAttr() verbs.DeviceAttr {
	return verbs.DeviceAttr{
		Name: "sim", MaxMsg: 1 << 30, MaxSendWR: 16384, MaxRecvWR: 16384, MaxSGE: 16, MaxReadSGE: 16,
		MaxInline: 512, MaxReadDepth: 16, MaxPrivate: 196,
		Caps: verbs.CapOrderedCQ | verbs.CapImm | verbs.CapAtomics | verbs.CapMaskedAtomic | verbs.CapGlobalAtomics | verbs.CapRNR |
			verbs.CapRestrictedMR | verbs.CapRemoteAck | verbs.CapRNRRetry | verbs.CapInvalidate | verbs.CapMW,
	}
}

// Device returns the live device of addr, making one if there is none: on the
// first call, and after Crash or Device.Close.
func (n *Network) Device(addr netip.Addr) *Device {
	addr = addr.Unmap()
	h := n.hosts[addr]
	if h == nil {
		h = &host{}
		n.hosts[addr] = h
	}
	h.up = true
	if h.dev == nil {
		h.dev = newDevice(n, addr)
	}
	return h.dev
}

// Crash takes the host addr down: its device is dead, nothing on it completes
// any more, and its peers notice in their own time. What it had transmitted
// may still arrive. Device brings the host back with a new device.
func (n *Network) Crash(addr netip.Addr) {
	h := n.hosts[addr.Unmap()]
	if h == nil {
		return
	}
	h.up = false
	if h.dev != nil {
		n.note(traceCrash, 0, 0)
		h.dev.die(true)
	}
}

// Now returns the virtual time in nanoseconds.
func (n *Network) Now() int64 { return n.now }

// NextEvent returns the time of the next event; false when there is none.
func (n *Network) NextEvent() (at int64, ok bool) {
	if len(n.events) == 0 {
		return 0, false
	}
	return n.events[0].at, true
}

// Step advances the clock to the next event and runs it; false when there is
// none.
func (n *Network) Step() bool {
	if len(n.events) == 0 {
		return false
	}
	e := n.events.pop()
	n.now = e.at
	e.run()
	return true
}

// At schedules fn for time at (now, if that has passed), behind the events
// already scheduled for it.
func (n *Network) At(at int64, fn func()) {
	n.seq++
	n.events.push(event{at: max(at, n.now), seq: n.seq, run: fn})
}

func (n *Network) after(d int64, fn func()) { n.At(n.now+d, fn) }

// TraceHash is a digest of everything that has happened: transmissions,
// deliveries, completions, connection events, faults, with their times.
func (n *Network) TraceHash() uint64 { return n.trace }

type traceKind uint64

const (
	traceSend traceKind = iota + 1
	traceDeliver
	traceRespond
	traceComplete
	traceCM
	traceBreak
	traceCrash
	traceHole
)

func (n *Network) note(k traceKind, qp uint32, x uint64) {
	const prime = 0x9e3779b97f4a7c15
	h := n.trace ^ uint64(n.now)*prime ^ uint64(k)<<56 ^ uint64(qp)<<24
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
	n.trace = (h ^ h>>32 ^ x) * prime
}
