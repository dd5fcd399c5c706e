package sim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

const (
	defaultTimeout = 5e9
	maxReject      = 148
)

// attempt is one connection being set up. Each end can give up without the
// other knowing yet.
type attempt struct {
	active, passive *QP // nil once given up or failed
	param           verbs.ConnectParam
	dev             *Device // the passive side's, once the request arrived
}

// giveUp is called when q, an end of the attempt, is destroyed or reset.
func (a *attempt) giveUp(q *QP) {
	switch {
	case a == nil:
	case a.active == q:
		a.active = nil
	case a.passive == q:
		a.passive = nil
	}
	q.setup = nil
}

type listener struct {
	dev    *Device
	addr   netip.AddrPort
	closed bool
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

func (l *listener) Close() error {
	if !l.closed {
		l.closed = true
		l.dev.listeners = slices.DeleteFunc(l.dev.listeners, func(o *listener) bool { return o == l })
	}
	return nil
}

// Listen implements verbs.Device.
func (d *Device) Listen(addr netip.AddrPort) (verbs.Listener, error) {
	if d.dead {
		return nil, d.deadError("Listen")
	}
	if !addr.IsValid() {
		return nil, d.invalid("Listen", "no address")
	}
	if a := addr.Addr().Unmap(); a != d.addr && !a.IsUnspecified() {
		return nil, fmt.Errorf("sim: listen on %v: not an address of %v: %w", addr, d.addr, unix.EADDRNOTAVAIL)
	}
	addr = netip.AddrPortFrom(d.addr, addr.Port())
	if addr.Port() == 0 {
		addr = netip.AddrPortFrom(d.addr, d.ephemeral())
	}
	if d.listening(addr.Port()) != nil {
		return nil, fmt.Errorf("sim: listen on %v: %w", addr, unix.EADDRINUSE)
	}
	l := &listener{dev: d, addr: addr}
	d.listeners = append(d.listeners, l)
	return l, nil
}

func (d *Device) listening(port uint16) *listener {
	for _, l := range d.listeners {
		if l.addr.Port() == port {
			return l
		}
	}
	return nil
}

func (d *Device) ephemeral() uint16 {
	for {
		d.lastPort++
		if d.lastPort < 32768 {
			d.lastPort = 32768
		}
		if d.listening(d.lastPort) == nil {
			return d.lastPort
		}
	}
}

// fresh checks that qp may start to connect.
func (d *Device) fresh(call string, qp verbs.QP) (*QP, error) {
	if d.dead {
		return nil, d.deadError(call)
	}
	q, ok := qp.(*QP)
	if !ok || q.dev != d || q.destroyed {
		return nil, d.invalid(call, "no live queue pair of this device")
	}
	if q.state != verbs.QPInit || q.setup != nil {
		return nil, d.invalid(call, fmt.Sprintf("queue pair in %v, not in INIT", q.State()))
	}
	return q, nil
}

// Connect implements verbs.Device.
func (d *Device) Connect(qp verbs.QP, p verbs.ConnectParam) error {
	q, err := d.fresh("Connect", qp)
	if err != nil {
		return err
	}
	if len(p.Private) > d.attr.MaxPrivate {
		return d.invalid("Connect", fmt.Sprintf("%d bytes of private data, at most %d", len(p.Private), d.attr.MaxPrivate))
	}
	switch {
	case !p.Remote.IsValid() || p.Remote.Port() == 0:
		return d.invalid("Connect", "no remote address and port")
	case p.Local.IsValid() && p.Local.Addr().Unmap().Is4() != p.Remote.Addr().Unmap().Is4():
		return d.invalid("Connect", fmt.Sprintf("%v and %v are not of one address family", p.Local, p.Remote))
	case p.TimeoutNs < 0:
		return d.invalid("Connect", fmt.Sprintf("time limit of %d ns", p.TimeoutNs))
	}
	if p.Local.Addr().IsValid() && p.Local.Addr().Unmap() != d.addr {
		return fmt.Errorf("sim: connect from %v: not an address of %v: %w", p.Local, d.addr, unix.EADDRNOTAVAIL)
	}
	port := p.Local.Port()
	if port == 0 {
		port = d.ephemeral()
	}
	p.Local = netip.AddrPortFrom(d.addr, port)
	p.Remote = netip.AddrPortFrom(p.Remote.Addr().Unmap(), p.Remote.Port())
	p.Private = slices.Clone(p.Private)
	if p.TimeoutNs == 0 {
		p.TimeoutNs = defaultTimeout
	}
	a := &attempt{active: q, param: p}
	q.setup = a
	n := d.net
	n.after(p.TimeoutNs, func() {
		a.failActive(verbs.CMEvent{Type: verbs.CMUnreachable, Err: fmt.Errorf("sim: connect to %v: %w", p.Remote, unix.ETIMEDOUT)})
	})
	switch {
	case n.rand.unreachable.chance(n.Faults.Unreachable):
		n.after(n.wire(), func() { a.unreachable(unix.EHOSTUNREACH) })
	case n.rand.refuse.chance(n.Faults.Refuse):
		n.after(n.wire(), func() { a.unreachable(unix.ECONNREFUSED) })
	case n.rand.lost.chance(n.Faults.Lost):
	default:
		n.after(n.wire(), a.arrive)
	}
	return nil
}

// wire draws a delay for a message of a set-up.
func (n *Network) wire() int64 { return n.rand.connect.between(n.Timing.Wire) }

func (a *attempt) unreachable(why error) {
	a.failActive(verbs.CMEvent{Type: verbs.CMUnreachable, Err: fmt.Errorf("sim: connect to %v: %w", a.param.Remote, why)})
}

// failActive ends the set-up at the active side, if it still waits.
func (a *attempt) failActive(ev verbs.CMEvent) {
	q := a.active
	if q == nil {
		return
	}
	a.active = nil
	q.failSetup(ev)
}

// failPassive ends the set-up at the passive side.
func (a *attempt) failPassive() {
	q := a.passive
	if q == nil {
		return
	}
	a.passive = nil
	q.failSetup(verbs.CMEvent{Type: verbs.CMConnectError, Err: fmt.Errorf("sim: accept from %v: %w", a.param.Local, unix.ECONNRESET)})
}

func (q *QP) failSetup(ev verbs.CMEvent) {
	q.setup = nil
	q.state = verbs.QPErr
	q.flush(verbs.WCWRFlushErr)
	ev.QP = q
	q.dev.event(ev)
}

// reset ends a set-up that broke, at the active side.
func (a *attempt) reset() {
	a.failActive(verbs.CMEvent{Type: verbs.CMConnectError, Err: fmt.Errorf("sim: connect to %v: %w", a.param.Remote, unix.ECONNRESET)})
}

// disturb asks for a fault of the set-up and reports whether the fault ended it.
func (a *attempt) disturb(k PointKind, at *Device, q *QP) bool {
	n := at.net
	act := n.fault(k, at, q, 0)
	if act == Pass {
		return false
	}
	n.note(traceBreak, q.num, uint64(act))
	passive := a.dev
	switch {
	case act == CrashRequester:
		n.Crash(q.dev.addr)
	case act == CrashResponder && passive != nil:
		n.Crash(passive.addr)
	}
	learn := func(late bool, fn func()) {
		r := n.Timing.Learn
		if late {
			r = n.Timing.Late
		}
		n.after(n.rand.learn.between(r), fn)
	}
	learn(act == HalfOpen, a.reset)
	learn(act == HalfOpenPeer, a.failPassive)
	return true
}

// arrive handles the request at the passive host.
func (a *attempt) arrive() {
	q := a.active
	if q == nil {
		return
	}
	n := q.dev.net
	h := n.hosts[a.param.Remote.Addr()]
	if h == nil || !h.up || n.Swallows(q.dev.addr, a.param.Remote.Addr()) {
		return // nobody answers: the time-out ends it
	}
	if h.dev == nil || h.dev.listening(a.param.Remote.Port()) == nil {
		n.after(n.wire(), func() { a.unreachable(unix.ECONNREFUSED) })
		return
	}
	d := h.dev
	a.dev = d
	if a.disturb(ConnectRequest, d, q) {
		return
	}
	d.lastReq++
	d.requests[d.lastReq] = a
	d.event(verbs.CMEvent{
		Type: verbs.CMConnectRequest, Req: d.lastReq, Local: a.param.Remote, Remote: a.param.Local,
		Private: slices.Clone(a.param.Private),
	})
}

// take returns the unanswered request id, and checks the private data of the answer.
func (d *Device) take(call string, id verbs.RequestID, private []byte, limit int) (*attempt, error) {
	if d.dead {
		return nil, d.deadError(call)
	}
	a := d.requests[id]
	if a == nil {
		return nil, d.invalid(call, fmt.Sprintf("no unanswered request %d", id))
	}
	if len(private) > limit {
		return nil, d.invalid(call, fmt.Sprintf("%d bytes of private data, at most %d", len(private), limit))
	}
	return a, nil
}

// Reject implements verbs.Device.
func (d *Device) Reject(id verbs.RequestID, private []byte) error {
	a, err := d.take("Reject", id, private, maxReject)
	if err != nil {
		return err
	}
	delete(d.requests, id)
	private = slices.Clone(private)
	d.net.after(d.net.wire(), func() {
		if !d.net.Swallows(d.addr, a.param.Local.Addr()) {
			a.failActive(verbs.CMEvent{Type: verbs.CMRejected, Private: private})
		}
	})
	return nil
}

// Accept implements verbs.Device.
func (d *Device) Accept(id verbs.RequestID, qp verbs.QP, private []byte) error {
	a, err := d.take("Accept", id, private, d.attr.MaxPrivate)
	if err != nil {
		return err
	}
	q, err := d.fresh("Accept", qp)
	if err != nil {
		return err
	}
	delete(d.requests, id)
	a.passive, q.setup = q, a
	private = slices.Clone(private)
	d.net.after(d.net.wire(), func() { a.reply(private) })
	d.net.after(defaultTimeout, a.failPassive)
	return nil
}

// reply handles the acceptance at the active side.
func (a *attempt) reply(private []byte) {
	q, p := a.active, a.passive
	if q == nil || q.dev.dead {
		if p != nil {
			p.dev.net.after(p.dev.net.wire(), a.failPassive)
		}
		return
	}
	if p == nil || p.dev.dead {
		a.reset()
		return
	}
	n := q.dev.net
	if n.Swallows(q.dev.addr, p.dev.addr) || a.disturb(ConnectReply, q.dev, q) {
		return
	}
	depth := min(q.attr.Cap.ReadDepth, p.attr.Cap.ReadDepth)
	q.peer, p.peer = p, q
	a.active, q.setup = nil, nil
	q.established(depth)
	q.dev.event(verbs.CMEvent{Type: verbs.CMEstablished, QP: q, Local: a.param.Local, Remote: a.param.Remote, Private: private})
	ready := n.now + n.wire()
	q.out.last = ready // nothing overtakes the set-up
	n.At(ready, func() { n.cross(q.dev.addr, p.dev.addr, func() { a.ready(q, depth) }) })
}

// ready handles the active side's confirmation at the passive side.
func (a *attempt) ready(q *QP, depth int) {
	p := a.passive
	if p == nil || p.dev.dead {
		q.learnLater(false)
		return
	}
	if q.state != verbs.QPRTS || q.dev.dead {
		a.failPassive()
		return
	}
	if a.disturb(ConnectReady, p.dev, q) {
		q.cut()
		q.learnLater(false)
		return
	}
	a.passive, p.setup = nil, nil
	p.passive = true
	p.established(depth)
	p.dev.event(verbs.CMEvent{Type: verbs.CMEstablished, QP: p, Local: a.param.Remote, Remote: a.param.Local})
}

func (q *QP) established(depth int) {
	q.state = verbs.QPRTS
	q.attr.Cap.ReadDepth = depth
	if q.tail > q.tx {
		q.armTransmit()
	}
}
