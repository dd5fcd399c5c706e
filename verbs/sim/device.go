package sim

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// Device is one host's device. It belongs to the network's owner.
type Device struct {
	net  *Network
	addr netip.Addr
	attr verbs.DeviceAttr
	dead bool

	regions   []*MR // by key slot
	freeSlots []int
	kept      map[uint32]*MR // by the upper 24 bits of keys that were given
	keyBase   uint32
	qps       []*QP
	cqReady   int // completions not polled, all CQs
	events    []verbs.CMEvent
	async     []verbs.AsyncEvent
	asyncOn   bool
	listeners []*listener
	requests  map[verbs.RequestID]*attempt
	lastReq   verbs.RequestID
	lastPort  uint16
	letting   []*letting
}

var _ verbs.Device = (*Device)(nil)

func newDevice(n *Network, addr netip.Addr) *Device {
	attr := n.Attr
	attr.Caps |= verbs.CapOrderedCQ
	return &Device{
		net: n, addr: addr, attr: attr,
		keyBase:  1 + uint32(n.rand.key.below(1<<23)),
		kept:     map[uint32]*MR{},
		requests: map[verbs.RequestID]*attempt{},
		lastReq:  verbs.RequestID(n.rand.key.below(1 << 32)),
		lastPort: 32768 + uint16(n.rand.key.below(16384)),
	}
}

// deadError returns the error of a call on a crashed or closed device.
func (d *Device) deadError(call string) error {
	return fmt.Errorf("sim: %s: device of %v is gone: %w", call, d.addr, unix.ENODEV)
}

func (d *Device) invalid(call, why string) error {
	return fmt.Errorf("sim: %s on %v: %s: %w", call, d.addr, why, unix.EINVAL)
}

// Addr returns the address of the host.
func (d *Device) Addr() netip.Addr { return d.addr }

// Alive reports whether the device has neither crashed nor been closed.
func (d *Device) Alive() bool { return !d.dead }

// Pending reports whether completions, connection or asynchronous
// events wait to be polled, or Progress has something to tell.
func (d *Device) Pending() bool {
	return !d.dead && (d.cqReady > 0 || len(d.events) > 0 || len(d.async) > 0 || d.lets())
}

// Attr implements verbs.Device.
func (d *Device) Attr() verbs.DeviceAttr { return d.attr }

// Flush does nothing.
func (d *Device) Flush() {}

// FD returns -1: there is nothing to wait for in real time.
func (d *Device) FD() int { return -1 }

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.PD, error) {
	if d.dead {
		return nil, d.deadError("AllocPD")
	}
	return &PD{dev: d}, nil
}

// CreateCQ implements verbs.Device.
func (d *Device) CreateCQ(cqe int) (verbs.CQ, error) {
	if d.dead {
		return nil, d.deadError("CreateCQ")
	}
	if cqe < 1 || cqe > maxCQE {
		return nil, d.invalid("CreateCQ", fmt.Sprintf("%d entries, at most %d", cqe, maxCQE))
	}
	return &CQ{dev: d, cap: cqe}, nil
}

// PollCM implements verbs.Device. Events of destroyed queue pairs are dropped.
func (d *Device) PollCM(ev []verbs.CMEvent) int {
	n, used := 0, 0
	for used < len(d.events) && n < len(ev) {
		e := &d.events[used]
		used++
		if qp, ok := e.QP.(*QP); ok && qp.destroyed {
			continue
		}
		ev[n] = *e
		n++
	}
	rest := copy(d.events, d.events[used:])
	clear(d.events[rest:])
	d.events = d.events[:rest]
	return n
}

func (d *Device) event(ev verbs.CMEvent) {
	if d.dead {
		return
	}
	var num uint32
	if qp, ok := ev.QP.(*QP); ok {
		if qp.destroyed {
			return
		}
		num = qp.num
	}
	d.net.note(traceCM, num, uint64(ev.Type))
	d.events = append(d.events, ev)
}

// Close implements verbs.Device. Peers notice in their own time.
func (d *Device) Close() error {
	if !d.dead {
		d.die(false)
	}
	return nil
}

// die ends the device. Its host stays up unless it crashed.
func (d *Device) die(crash bool) {
	d.dead = true
	d.net.hosts[d.addr].dev = nil
	for _, l := range d.listeners {
		l.closed = true
	}
	for _, q := range d.qps {
		q.abandon(crash)
	}
	d.qps, d.listeners, d.events, d.async, d.regions, d.kept, d.cqReady = nil, nil, nil, nil, nil, nil, 0
	d.requests = nil
}

// PD implements verbs.PD.
type PD struct {
	dev  *Device
	uses int
	gone bool
}

// Dealloc implements verbs.PD.
func (pd *PD) Dealloc() error {
	if pd.gone && !pd.dev.dead {
		return pd.dev.invalid("Dealloc", "protection domain deallocated")
	}
	if pd.uses > 0 && !pd.dev.dead {
		return fmt.Errorf("sim: Dealloc: %d objects of the protection domain live: %w", pd.uses, unix.EBUSY)
	}
	pd.gone = true
	return nil
}

func (pd *PD) usable(call string) error {
	if pd.dev.dead {
		return pd.dev.deadError(call)
	}
	if pd.gone {
		return pd.dev.invalid(call, "protection domain deallocated")
	}
	return nil
}
