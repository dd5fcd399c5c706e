//go:build ibv && linux

package ibv

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

const (
	defaultTimeout = 5 * time.Second
	maxReply       = 196 // private data of an acceptance, on InfiniBand
	maxReject      = 148
	backlog        = 128
	consumerReject = 28 // IB_CM_REJ_CONSUMER_DEFINED
	noService      = 8  // IB_CM_REJ_INVALID_SERVICE_ID
	muteFor        = 100 * time.Millisecond
	firstNudge     = 20 * time.Millisecond
	lastNudge      = 1300 * time.Millisecond
)

// idKind is the purpose of a communication identifier.
type idKind uint8

const (
	idProbe idKind = iota
	idListener
	idRequest // a peer's request that was not answered
	idActive
	idPassive
	idLate // its queue pair is gone, and the peer's answer has not come
)

// cmID is a communication identifier of librdmacm.
type cmID struct {
	dev   *Device
	c     *C.struct_rdma_cm_id
	token uint64
	kind  idKind
	qp    *qp
	l     *listener

	private        []byte // private data to send with the request
	until          time.Time
	busy           bool // a helper is in rdma_connect
	asked          bool // the request went out over iWARP
	late           *C.struct_ibv_qp
	dropped        bool // destroyed when the helper ends
	depth, serving int  // limits in the peer's request
}

func (d *Device) newID(kind idKind) (*cmID, error) {
	d.token++
	id := &cmID{dev: d, token: d.token, kind: kind}
	var e C.int
	if id.c = C.ibvx_new_id(d.cm, C.uint64_t(id.token), &e); id.c == nil {
		return nil, errno(e, "connection identifier")
	}
	d.ids[id.token] = id
	return id, nil
}

// drop destroys the identifier, at once or when its helper has ended.
func (id *cmID) drop() {
	if id.busy {
		id.dropped = true
		return
	}
	id.destroy()
}

func (id *cmID) destroy() {
	if id.late != nil {
		C.ibv_destroy_qp(id.late)
		id.late = nil
	}
	if id.c != nil {
		C.rdma_destroy_id(id.c)
		id.c = nil
		delete(id.dev.ids, id.token)
	}
}

// sockaddr is an address in C's layout.
func sockaddr(a netip.AddrPort) (sa [28]byte) {
	ip := a.Addr().Unmap()
	if ip.Is4() {
		binary.NativeEndian.PutUint16(sa[0:], unix.AF_INET)
		b := ip.As4()
		copy(sa[4:], b[:])
	} else {
		binary.NativeEndian.PutUint16(sa[0:], unix.AF_INET6)
		b := ip.As16()
		copy(sa[8:], b[:])
	}
	binary.BigEndian.PutUint16(sa[2:], a.Port())
	return sa
}

func addrPort(c *C.struct_sockaddr_storage) netip.AddrPort {
	sa := (*[28]byte)(unsafe.Pointer(c))
	port := binary.BigEndian.Uint16(sa[2:])
	switch binary.NativeEndian.Uint16(sa[0:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), port)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(sa[8:24])), port)
	}
	return netip.AddrPort{}
}

// listener implements verbs.Listener.
type listener struct {
	id   *cmID
	addr netip.AddrPort
}

// Listen implements verbs.Device.
func (d *Device) Listen(addr netip.AddrPort) (verbs.Listener, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	if !addr.IsValid() {
		return nil, invalid("no address to listen on")
	}
	const tries = 20 // rdma_cm picks a port without asking TCP, with which iWARP shares ports
	var err error
	for try := 0; try < tries; try++ {
		var l *listener
		if l, err = d.listen(addr); err == nil {
			return l, nil
		}
		if addr.Port() != 0 {
			break
		}
	}
	return nil, err
}

func (d *Device) listen(addr netip.AddrPort) (*listener, error) {
	id, err := d.newID(idListener)
	if err != nil {
		return nil, err
	}
	sa := sockaddr(addr)
	e := C.ibvx_bind(id.c, unsafe.Pointer(&sa))
	if e == 0 {
		e = C.ibvx_listen(id.c, backlog)
	}
	switch {
	case e == C.int(unix.ENODEV) || e == C.int(unix.EADDRNOTAVAIL):
		err = fmt.Errorf("ibv: listen on %v: %w (%w)", addr, noDevice(addr.Addr(), unix.Errno(e)), unix.Errno(e))
	case e != 0:
		err = fmt.Errorf("ibv: listen on %v: %w", addr, unix.Errno(e))
	case C.GoString(C.ibvx_id_device(id.c)) != d.name:
		err = fmt.Errorf("ibv: listen on %v: the address is not one of %s: %w", addr, d.name, unix.EADDRNOTAVAIL)
	}
	if err != nil {
		id.destroy()
		return nil, err
	}
	id.l = &listener{id: id, addr: netip.AddrPortFrom(addr.Addr(), uint16(C.ibvx_src_port(id.c)))}
	return id.l, nil
}

// Addr implements verbs.Listener.
func (l *listener) Addr() netip.AddrPort { return l.addr }

// Close implements verbs.Listener. It destroys requests that were not answered.
func (l *listener) Close() error {
	d := l.id.dev
	d.listenMu.Lock()
	defer d.listenMu.Unlock()
	if l.id.c != nil {
		C.rdma_destroy_id(l.id.c)
		l.id.c = nil
		d.call(func() { delete(d.ids, l.id.token) })
	}
	return nil
}

// own makes the checks that Connect and Accept share.
func (d *Device) own(v verbs.QP, call string) (*qp, error) {
	q, ok := v.(*qp)
	switch {
	case !ok || q == nil:
		return nil, invalid("%s without a queue pair", call)
	case q.dev != d || q.gone:
		return nil, invalid("%s with a queue pair that is not of this device", call)
	case q.state != verbs.QPInit || q.linked:
		return nil, invalid("%s with a queue pair in %v, not in INIT", call, q.state)
	}
	return q, nil
}

// Connect implements verbs.Device.
func (d *Device) Connect(v verbs.QP, p verbs.ConnectParam) error {
	if err := d.alive(); err != nil {
		return err
	}
	q, err := d.own(v, "Connect")
	if err != nil {
		return err
	}
	switch {
	case !p.Remote.IsValid() || p.Remote.Port() == 0 || p.Remote.Addr().IsUnspecified():
		return invalid("no remote address to connect to")
	case p.Local.IsValid() && p.Local.Addr().Unmap().Is4() != p.Remote.Addr().Unmap().Is4():
		return invalid("local and remote address are not of one family")
	case p.TimeoutNs < 0:
		return invalid("a time of %d ns to connect in", p.TimeoutNs)
	case len(p.Private) > d.attr.MaxPrivate:
		return invalid("%d bytes of private data, limit %d", len(p.Private), d.attr.MaxPrivate)
	}
	id, err := d.newID(idActive)
	if err != nil {
		return err
	}
	timeout := defaultTimeout
	if p.TimeoutNs > 0 {
		timeout = time.Duration(p.TimeoutNs)
	}
	id.private, id.until = slices.Clone(p.Private), time.Now().Add(timeout)
	var src unsafe.Pointer
	local, remote := sockaddr(p.Local), sockaddr(p.Remote)
	if p.Local.IsValid() {
		src = unsafe.Pointer(&local)
	}
	if e := C.ibvx_resolve(id.c, src, unsafe.Pointer(&remote), id.ms()); e != 0 {
		id.destroy()
		return fmt.Errorf("ibv: connect to %v: %w", p.Remote, unix.Errno(e))
	}
	id.qp, q.id = q, id
	q.linked, q.state = true, verbs.QPRTR
	d.after(timeout, func() {
		if id.qp != nil && !id.qp.established {
			id.qp.setUpFailed(verbs.CMUnreachable, fmt.Errorf("ibv: %v did not answer within %v: %w", p.Remote, timeout, unix.ETIMEDOUT), nil)
		}
	})
	return nil
}

// ms is the time left for the set-up, in milliseconds.
func (id *cmID) ms() C.int {
	return C.int(max(time.Until(id.until).Milliseconds(), 1))
}

// Accept implements verbs.Device.
func (d *Device) Accept(r verbs.RequestID, v verbs.QP, private []byte) error {
	if err := d.alive(); err != nil {
		return err
	}
	id := d.ids[uint64(r)]
	if id == nil || id.kind != idRequest {
		return invalid("no request %d, or it is answered", r)
	}
	q, err := d.own(v, "Accept")
	if err != nil {
		return err
	}
	limit := maxReply
	if d.iwarp {
		limit = d.attr.MaxPrivate
	}
	if limit = max(min(limit, d.attr.MaxPrivate), 0); len(private) > limit {
		return invalid("%d bytes of private data, limit %d", len(private), limit)
	}
	q.depth, q.serve = min(q.depth, id.depth), min(q.serve, id.serving)
	id.kind = idPassive
	id.qp, q.id = q, id
	q.linked, q.passive, q.mute, q.state = true, true, d.iwarp, verbs.QPRTR
	if !d.iwarp {
		err = q.toRTS()
	}
	if err == nil {
		data, n := cBytes(private)
		e := C.ibvx_accept(id.c, data, n, C.int(q.serve), C.int(q.depth), C.int(q.rnrRetry()), C.uint32_t(q.num), b2i(q.srq != nil))
		C.free(data)
		if e != 0 {
			err = errno(e, "accepting a connection")
		}
	}
	if err != nil {
		q.told = true
		q.end(err)
	}
	return err
}

func cBytes(b []byte) (unsafe.Pointer, C.int) { return C.CBytes(b), C.int(len(b)) }

// Reject implements verbs.Device.
func (d *Device) Reject(r verbs.RequestID, private []byte) error {
	if err := d.alive(); err != nil {
		return err
	}
	id := d.ids[uint64(r)]
	if id == nil || id.kind != idRequest {
		return invalid("no request %d, or it is answered", r)
	}
	if len(private) > maxReject {
		return invalid("%d bytes of private data, limit %d", len(private), maxReject)
	}
	data, n := cBytes(private)
	e := C.ibvx_reject(id.c, data, n)
	C.free(data)
	id.destroy()
	if e != 0 {
		return errno(e, "rejecting a connection")
	}
	return nil
}

// PollCM implements verbs.Device.
func (d *Device) PollCM(ev []verbs.CMEvent) int {
	if d.closed {
		return 0
	}
	n := copy(ev, d.events)
	d.events = slices.Delete(d.events, 0, n)
	if n > 0 {
		d.updateWake()
	}
	return n
}

// dropEvents drops the events of a queue pair: a destroyed queue pair has none.
func (d *Device) dropEvents(q *qp) {
	d.events = slices.DeleteFunc(d.events, func(e verbs.CMEvent) bool { return e.QP == verbs.QP(q) })
}

// pollCM reads the connection manager's events.
func (d *Device) pollCM() bool {
	var e C.struct_ibvx_cm
	for C.ibvx_next_cm(d.cm, &e) == 0 {
		if e._type == C.RDMA_CM_EVENT_CONNECT_REQUEST {
			d.request(&e)
			continue
		}
		id := d.ids[uint64(e.token)]
		if id == nil || id.c != e.id {
			continue
		}
		if e._type == C.RDMA_CM_EVENT_DEVICE_REMOVAL {
			d.removed(fmt.Errorf("ibv: %s: %w", d.name, ErrRemoved))
			continue
		}
		switch id.kind {
		case idRequest:
			if e._type != C.RDMA_CM_EVENT_TIMEWAIT_EXIT {
				id.destroy() // the peer has given up
			}
		case idLate:
			id.drop()
		case idActive, idPassive:
			if id.qp != nil {
				id.qp.connection(&e)
			}
		}
	}
	d.settle()
	return true
}

// request handles a connection request.
func (d *Device) request(e *C.struct_ibvx_cm) {
	d.token++
	id := &cmID{dev: d, c: e.id, token: d.token, kind: idRequest}
	C.ibvx_set_token(id.c, C.uint64_t(id.token))
	d.ids[id.token] = id
	id.depth, id.serving = int(e.depth), int(e.resources)
	if d.iwarp { // drivers do not agree on which field is which
		id.depth = min(id.depth, id.serving)
		id.serving = d.attr.MaxReadDepth
	}
	if l := d.ids[uint64(e.token)]; l == nil || l.l == nil || C.GoString(C.ibvx_id_device(id.c)) != d.name {
		C.ibvx_reject(id.c, nil, 0)
		id.destroy()
		return
	}
	d.events = append(d.events, verbs.CMEvent{Type: verbs.CMConnectRequest, Req: verbs.RequestID(id.token),
		Local: addrPort(&e.local), Remote: addrPort(&e.remote), Private: private(e)})
}
