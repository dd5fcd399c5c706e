//go:build ibv && linux

package ibv

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// setUpFailed ends a set-up with an event.
func (q *qp) setUpFailed(t verbs.CMEventType, err error, private []byte) {
	d := q.dev
	d.events = append(d.events, verbs.CMEvent{Type: t, QP: q, Err: err, Private: private})
	q.told = true
	q.end(err)
}

func (q *qp) rnrRetry() int {
	n, bounded := q.attr.RNRRetry.Limit()
	if !bounded {
		return 7
	}
	return n
}

// toRTS gives the adapter's queue pair the attributes of the connection.
func (q *qp) toRTS() error {
	if e := C.ibvx_to_rts(q.id.c, q.c, C.uint32_t(q.access()), C.int(q.serve), C.int(q.depth), C.int(q.attr.MinRNRTimer), C.int(q.rnrRetry())); e != 0 {
		return errno(e, "moving a queue pair to RTS")
	}
	return nil
}

func private(e *C.struct_ibvx_cm) []byte {
	if e.private_len == 0 {
		return nil
	}
	return C.GoBytes(unsafe.Pointer(&e.private_data[0]), C.int(e.private_len))
}

// connection handles an event of a queue pair's connection.
func (q *qp) connection(e *C.struct_ibvx_cm) {
	switch e._type {
	case C.RDMA_CM_EVENT_ADDR_RESOLVED:
		q.resolved(e)
	case C.RDMA_CM_EVENT_ADDR_ERROR:
		q.failSetUp(e, statusOf(e), verbs.CMUnreachable, "no way to the address: is there a route, and does the neighbour answer?")
	case C.RDMA_CM_EVENT_ROUTE_ERROR:
		q.failSetUp(e, statusOf(e), verbs.CMUnreachable, "no path to its GID: do both ends have a GID of the same kind (RoCE v1, v2)?")
	case C.RDMA_CM_EVENT_ROUTE_RESOLVED:
		q.request()
	case C.RDMA_CM_EVENT_CONNECT_RESPONSE:
		q.responded(e)
	case C.RDMA_CM_EVENT_ESTABLISHED:
		if q.established {
			return
		}
		if q.dev.iwarp && !q.passive {
			q.depth = min(q.depth, max(int(e.resources), 1), max(int(e.depth), 1))
		}
		q.establish(private(e))
	case C.RDMA_CM_EVENT_REJECTED:
		q.rejected(e)
	case C.RDMA_CM_EVENT_UNREACHABLE:
		q.failSetUp(e, statusOf(e), verbs.CMUnreachable, "no answer")
	case C.RDMA_CM_EVENT_CONNECT_ERROR:
		q.failSetUp(e, statusOf(e), verbs.CMConnectError, "the set-up failed")
	case C.RDMA_CM_EVENT_DISCONNECTED:
		if !q.established {
			q.failSetUp(e, unix.ECONNRESET, verbs.CMConnectError, "the peer ended the set-up")
			return
		}
		q.fail(fmt.Errorf("ibv: %v ended the connection: %w", addrPort(&e.remote), unix.ECONNRESET))
	}
}

// statusOf is the errno of a failed event, which may come negated or be missing.
func statusOf(e *C.struct_ibvx_cm) unix.Errno {
	if e.status == 0 {
		return unix.EHOSTUNREACH
	}
	return unix.Errno(max(e.status, -e.status))
}

// failSetUp ends the set-up with an event of type t. On the passive side the type is always
// CMConnectError.
func (q *qp) failSetUp(e *C.struct_ibvx_cm, no unix.Errno, t verbs.CMEventType, what string) {
	if q.passive {
		t = verbs.CMConnectError
	}
	q.setUpFailed(t, fmt.Errorf("ibv: %v: %s: %w", addrPort(&e.remote), what, no), nil)
}

// resolved goes on to the route, if the address is reached through this device.
func (q *qp) resolved(e *C.struct_ibvx_cm) {
	if name := C.GoString(C.ibvx_id_device(q.id.c)); name != q.dev.name {
		q.failSetUp(e, unix.ENETUNREACH, verbs.CMUnreachable, fmt.Sprintf("the route leads through %s, not %s", name, q.dev.name))
	} else if r := C.ibvx_resolve_route(q.id.c, q.id.ms()); r != 0 {
		q.failSetUp(e, unix.Errno(max(r, -r)), verbs.CMUnreachable, "no route")
	}
}

// responded completes the set-up on the active side, over InfiniBand.
func (q *qp) responded(e *C.struct_ibvx_cm) {
	q.depth = min(q.depth, int(e.depth))
	err := q.toRTS()
	if err == nil {
		if r := C.ibvx_establish(q.id.c); r != 0 {
			err = errno(r, "completing the set-up")
		}
	}
	if err != nil {
		q.setUpFailed(verbs.CMConnectError, err, nil)
		return
	}
	q.establish(private(e))
}

// rejected ends the set-up: nobody listens there, the peer does not want it, or the
// connection manager refuses it.
func (q *qp) rejected(e *C.struct_ibvx_cm) {
	status := int(e.status)
	switch {
	case q.dev.iwarp && status == -int(unix.ECONNREFUSED), !q.dev.iwarp && status == noService:
		q.failSetUp(e, unix.ECONNREFUSED, verbs.CMUnreachable, "nobody listens there")
	case q.passive && (q.dev.iwarp || status == consumerReject):
		q.failSetUp(e, statusOf(e), verbs.CMConnectError, "the peer gave up")
	case q.dev.iwarp || status == consumerReject:
		q.setUpFailed(verbs.CMRejected, fmt.Errorf("ibv: %v rejected the connection: %w", addrPort(&e.remote), unix.ECONNREFUSED), private(e))
	default:
		q.failSetUp(e, unix.ECONNABORTED, verbs.CMConnectError, fmt.Sprintf("rejected by the connection manager, reason %d", status))
	}
}

// request sends the connection request. Over iWARP the driver makes the TCP connection
// within the call, so a helper goroutine calls it.
func (q *qp) request() {
	d, id := q.dev, q.id
	data, n := cBytes(id.private)
	c, serve, depth, rnr, num, shared := id.c, C.int(q.serve), C.int(q.depth), C.int(q.rnrRetry()), C.uint32_t(q.num), b2i(q.srq != nil)
	id.busy, id.asked = true, d.iwarp
	d.help.Go(func() {
		e := C.ibvx_connect(c, data, n, serve, depth, rnr, num, shared)
		C.free(data)
		d.call(func() {
			id.busy = false
			switch {
			case id.dropped, e != 0 && id.kind == idLate:
				id.destroy()
			case e != 0 && id.qp != nil:
				t := verbs.CMConnectError
				switch unix.Errno(e) {
				case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ETIMEDOUT:
					t = verbs.CMUnreachable
				}
				id.qp.setUpFailed(t, errno(e, "connecting"), nil)
			}
		})
	})
}

// establish handles the end of a successful set-up.
func (q *qp) establish(private []byte) {
	d := q.dev
	q.established, q.state = true, verbs.QPRTS
	d.events = append(d.events, verbs.CMEvent{Type: verbs.CMEstablished, QP: q, Private: private})
	num := q.num
	switch {
	case q.mute: // iWARP: the active side speaks first
		d.after(muteFor, func() {
			if q.num == num && q.established && !q.gone {
				q.unmute()
				d.settle()
			}
		})
	case d.siw:
		q.nudge(firstNudge, num)
	}
	q.push()
}

// nudge sends an empty WRITE to a silent peer. siw does not look at what arrives right
// behind its reply until more arrives.
func (q *qp) nudge(wait time.Duration, num uint32) {
	q.dev.after(wait, func() {
		if q.num != num || q.gone || q.c == nil || q.heard || (q.state != verbs.QPRTS && q.state != verbs.QPSQD) {
			return
		}
		if err := q.postMarker(0); err != nil {
			q.fail(err)
			q.dev.settle()
		} else if wait < lastNudge {
			q.nudge(2*wait, num)
		}
	})
}
