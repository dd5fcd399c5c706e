package soft

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// cmQueue holds connection events until PollCM takes them.
type cmQueue struct {
	ev   []verbs.CMEvent
	head int
}

func (c *cmQueue) len() int             { return len(c.ev) - c.head }
func (c *cmQueue) push(e verbs.CMEvent) { c.ev = append(c.ev, e) }

func (c *cmQueue) take(ev []verbs.CMEvent) int {
	n := copy(ev, c.ev[c.head:])
	clear(c.ev[c.head : c.head+n])
	c.head += n
	if c.head == len(c.ev) {
		c.ev, c.head = c.ev[:0], 0
	}
	return n
}

// forget drops the events of a QP that is being destroyed.
func (c *cmQueue) forget(q *qp) {
	keep := c.ev[c.head:c.head]
	for _, e := range c.ev[c.head:] {
		if e.QP != q {
			keep = append(keep, e)
		}
	}
	clear(c.ev[c.head+len(keep):])
	c.ev = c.ev[:c.head+len(keep)]
}

// request is an incoming connection that waits for Accept or Reject.
type request struct {
	fd            int
	mpa           iwarp.MPA
	raw           []byte // mpa as it came, if the device has a LateTap
	feat          iwarp.Features
	known         bool // feat came with it
	tls           *secure
	local, remote netip.AddrPort
	expiry        *time.Timer
	ctl           *control
}

// drop closes the connection without an answer.
func (r *request) drop() {
	r.done()
	closeFD(r.fd)
}

// done gives the place of the request back.
func (r *request) done() {
	r.expiry.Stop()
	r.ctl.slots.give(r.remote.Addr())
}

// listener implements verbs.Listener. Any goroutine may call its methods.
type listener struct {
	l   net.Listener
	ctl *control
}

// Listen implements verbs.Device.
func (d *Device) Listen(addr netip.AddrPort) (verbs.Listener, error) {
	if d.closed {
		return nil, errClosed
	}
	if !addr.IsValid() {
		return nil, fmt.Errorf("soft: listen needs an address: %w", unix.EINVAL)
	}
	open := d.opt.Listen
	if open == nil {
		open = openTCP
	}
	l, err := open(d.ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("soft: %w", err)
	}
	d.ctl.own(l)
	d.ctl.spawn(func() { d.ctl.accept(l) })
	return &listener{l, d.ctl}, nil
}

// openTCP opens a listening socket.
func openTCP(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", addr.String())
}

func (l *listener) Addr() netip.AddrPort { return addrOf(l.l.Addr()) }

func (l *listener) Close() error {
	l.ctl.disown(l.l)
	return l.l.Close()
}

// mine checks that v is a QP of d in state INIT, not yet connected.
func (d *Device) mine(v verbs.QP) (*qp, error) {
	q, ok := v.(*qp)
	switch {
	case d.closed:
		return nil, errClosed
	case !ok || q.dev != d || q.state == destroyed:
		return nil, fmt.Errorf("soft: not a queue pair of this device: %w", unix.EINVAL)
	case q.state != initial:
		return nil, fmt.Errorf("soft: queue pair %d is in %v, not in INIT: %w", q.num, q.State(), unix.EINVAL)
	}
	return q, nil
}

// Connect implements verbs.Device.
func (d *Device) Connect(v verbs.QP, p verbs.ConnectParam) error {
	q, err := d.mine(v)
	if err != nil {
		return err
	}
	if n := d.opt.maxPrivate(); len(p.Private) > n {
		return fmt.Errorf("soft: %d bytes of private data, limit %d: %w", len(p.Private), n, unix.EINVAL)
	}
	if err := checkRoute(p.Local, p.Remote); err != nil {
		return err
	}
	if p.TimeoutNs < 0 {
		return fmt.Errorf("soft: connect with a time limit of %d ns: %w", p.TimeoutNs, unix.EINVAL)
	}
	p.Private = append([]byte(nil), p.Private...)
	if !d.opt.PlainMPA {
		f := q.features()
		p.Private = f.Append(p.Private)
	}
	timeout := time.Duration(p.TimeoutNs)
	if timeout <= 0 {
		timeout = d.opt.HandshakeTimeout
	}
	ctx, cancel := context.WithTimeout(d.ctx, attemptTime(timeout))
	q.dial = &dialing{qp: q, cancel: cancel}
	ird, ord := q.depths()
	req := iwarp.MPA{
		CRC: q.crc, Rev: 2, Enhanced: true, P2P: true, RTRWrite: true,
		IRD: uint16(ird), ORD: uint16(ord), Private: p.Private,
	}
	dial := q.dial
	if !d.ctl.spawn(func() { d.ctl.connect(ctx, dial, p, req) }) {
		cancel()
		return errClosed
	}
	q.become(connecting)
	return nil
}

// attemptTime draws the time limit of an attempt that may take up to most: hosts that went away together
// are not asked together for ever.
func attemptTime(most time.Duration) time.Duration { return most - rand.N(most/5+1) }

// checkRoute returns why two addresses cannot be connected, or nil.
func checkRoute(local, remote netip.AddrPort) error {
	switch {
	case !remote.IsValid() || remote.Port() == 0:
		return fmt.Errorf("soft: connect needs a remote address and port: %w", unix.EINVAL)
	case local.IsValid() && local.Addr().Unmap().Is4() != remote.Addr().Unmap().Is4():
		return fmt.Errorf("soft: connect %v to %v: not of one address family: %w", local, remote, unix.EINVAL)
	}
	return nil
}

// takeResults handles what the goroutines of connection set-up and the I/O threads have finished.
func (d *Device) takeResults() bool {
	back := d.threads != nil && d.threads.done.Run()
	rs := d.ctl.take()
	for i := range rs {
		r := &rs[i]
		switch {
		case r.dial != nil:
			d.connected(r)
		case r.typ == verbs.CMConnectRequest:
			d.lastReq++
			id := d.lastReq
			var feat iwarp.Features
			var known bool
			raw := d.opt.rawMPA(&r.mpa)
			if !d.opt.PlainMPA {
				r.mpa.Private, feat, known = iwarp.SplitFeatures(r.mpa.Private)
			}
			d.requests[id] = &request{fd: r.fd, mpa: r.mpa, raw: raw, feat: feat, known: known, tls: r.tls, local: r.local, remote: r.remote, ctl: d.ctl,
				expiry: time.AfterFunc(2*d.opt.HandshakeTimeout, func() { d.ctl.post(result{fd: -1, req: id}) })}
			d.events.push(verbs.CMEvent{Type: verbs.CMConnectRequest, Req: id, Local: r.local, Remote: r.remote, Private: r.mpa.Private, Segment: r.segment})
		default:
			if req := d.requests[r.req]; req != nil {
				delete(d.requests, r.req)
				req.drop()
				d.ctl.refused()
			}
		}
	}
	if len(rs) > 0 {
		d.updateWake(false)
	}
	return back || len(rs) > 0
}

// connected ends a Connect.
func (d *Device) connected(r *result) {
	q := r.dial.qp
	r.dial.cancel()
	if q.dial != r.dial { // ToError or Destroy came first
		closeFD(r.fd)
		return
	}
	q.dial = nil
	q.late.passive, q.late.mpa = false, [2][]byte{r.request, d.opt.rawMPA(&r.mpa)}
	if !d.opt.PlainMPA {
		r.mpa.Private, q.peer, q.known = iwarp.SplitFeatures(r.mpa.Private)
	}
	ev := verbs.CMEvent{Type: r.typ, QP: q, Local: r.local, Remote: r.remote, Private: r.mpa.Private, Err: r.err}
	if r.typ == verbs.CMEstablished {
		if c := q.negotiate(&r.mpa); c != 0 {
			ev.Type, ev.Err = verbs.CMConnectError, fmt.Errorf("soft: connect to %v: %w", r.remote, c)
			// Before the first FPDU nothing else can be in the stream.
			q.local, q.remote, q.crc = r.local, r.remote, q.summed(r.tls, &r.mpa)
			q.markers = r.mpa.Markers
			last := q.farewell(&fault{code: c})
			if r.tls != nil {
				last = r.tls.lastSealed(last, tls13.AlertCloseNotify)
			}
			d.ctl.linger(r.fd, last)
		} else if err := q.establish(r.fd, r.local, r.remote, &r.mpa, r.tls); err != nil {
			ev.Type, ev.Err = verbs.CMConnectError, fmt.Errorf("soft: connect to %v: %w", r.remote, err)
			closeFD(r.fd)
		}
	}
	if ev.Type != verbs.CMEstablished {
		q.fail(&fault{quiet: true})
		d.events.push(ev)
		return
	}
	d.events.push(ev)
	q.sendRTR()
	if !q.known {
		q.nudges = 0
		q.startTimer(timerStart, startNs)
	}
}

func (d *Device) answer(id verbs.RequestID) (*request, error) {
	if d.closed {
		return nil, errClosed
	}
	r := d.requests[id]
	if r == nil {
		return nil, fmt.Errorf("soft: no connection request %d (answered, or expired): %w", id, unix.EINVAL)
	}
	return r, nil
}

// Accept implements verbs.Device. The reply is written at once; Established
// follows at the next PollCM.
func (d *Device) Accept(id verbs.RequestID, v verbs.QP, private []byte) error {
	r, err := d.answer(id)
	if err != nil {
		return err
	}
	q, err := d.mine(v)
	if err != nil {
		return err
	}
	if n := d.opt.maxPrivate(); len(private) > n {
		return fmt.Errorf("soft: %d bytes of private data, limit %d: %w", len(private), n, unix.EINVAL)
	}
	delete(d.requests, id)
	r.done()
	m := &r.mpa
	q.peer, q.known = r.feat, r.known
	_ = q.negotiate(m)
	if q.known {
		f := q.features()
		private = f.Append(append([]byte(nil), private...))
	}
	reply := iwarp.MPA{Reply: true, CRC: q.summed(r.tls, m), Rev: m.Rev, Enhanced: m.Enhanced, Private: private}
	if m.Enhanced {
		reply.IRD, reply.ORD = uint16(q.serve.limit), uint16(q.sq.waits.limit)
		if q.known { // it can tell the part that is for its fences
			ird, _ := q.depths()
			reply.IRD = uint16(ird)
		}
		reply.P2P = m.P2P
		// As RFC 6581 wants, one of the kinds offered. A bare offer of a SEND
		// is answered as siw does it.
		reply.RTRRead = m.P2P && !m.RTRWrite && m.RTRRead
		reply.RTRWrite = m.P2P && !reply.RTRRead
	}
	q.become(answering)
	ev := verbs.CMEvent{Type: verbs.CMEstablished, QP: q, Local: r.local, Remote: r.remote}
	err = silent(r.fd)
	if err == nil && q.attr.Ack == verbs.AckRemote && q.sq.waits.limit == 0 {
		err = errNoFence
	}
	if err == nil {
		q.late.passive, q.late.mpa = true, [2][]byte{r.raw, d.opt.rawMPA(&reply)}
		err = d.reply(r, &reply)
	}
	if err == nil {
		err = q.establish(r.fd, r.local, r.remote, m, r.tls)
	}
	if err != nil {
		ev.Type, ev.Err = verbs.CMConnectError, fmt.Errorf("soft: accept %v: %w", r.remote, err)
		closeFD(r.fd)
		q.fail(&fault{quiet: true})
	}
	d.events.push(ev)
	d.updateWake(false)
	return nil
}

// reply writes an MPA reply. The socket is new, so it has room.
func (d *Device) reply(r *request, m *iwarp.MPA) error {
	b := m.Append(nil)
	if d.opt.Tap != nil {
		d.opt.Tap.Stream(r.local, r.remote, true, b)
	}
	if r.tls != nil {
		var err error
		if b, err = r.tls.Out.Append(nil, b); err != nil {
			return err
		}
	}
	n, err := unix.SendmsgN(r.fd, b, nil, nil, ioFlags)
	if err == nil && n < len(b) {
		err = unix.ENOBUFS
	}
	return err
}

// Reject implements verbs.Device.
func (d *Device) Reject(id verbs.RequestID, private []byte) error {
	r, err := d.answer(id)
	if err != nil {
		return err
	}
	if len(private) > maxReject {
		return fmt.Errorf("soft: %d bytes of private data, limit %d: %w", len(private), maxReject, unix.EINVAL)
	}
	delete(d.requests, id)
	r.done()
	no := rejection(&r.mpa, private)
	if err := d.reply(r, &no); err != nil {
		closeFD(r.fd)
		return nil // the peer is gone; there is nobody left to refuse
	}
	d.ctl.lingerFor(r.fd, nil, true, func() {})
	return nil
}

// PollCM implements verbs.Device.
func (d *Device) PollCM(ev []verbs.CMEvent) int {
	if d.closed {
		return 0
	}
	d.takeResults()
	n := d.events.take(ev)
	d.updateWake(d.dirty.N > 0)
	return n
}
