//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// raise queues an event for PollAsync. It does nothing if PollAsync was never called.
func (d *Device) raise(e verbs.AsyncEvent) {
	if d.asked {
		d.asyncs = append(d.asyncs, e)
	}
}

// forget drops the events of an object that is destroyed.
func (d *Device) forget(is func(*verbs.AsyncEvent) bool) {
	d.asyncs = slices.DeleteFunc(d.asyncs, func(e verbs.AsyncEvent) bool { return is(&e) })
	d.updateWake()
}

// PollAsync implements verbs.Device.
func (d *Device) PollAsync(ev []verbs.AsyncEvent) int {
	d.asked = true
	if d.closed {
		return 0
	}
	if len(d.asyncs) == 0 { // an overflow of a queue that nobody polls
		for c := range d.cqs {
			c.stage()
		}
	}
	n := copy(ev, d.asyncs)
	d.asyncs = slices.Delete(d.asyncs, 0, n)
	if n > 0 {
		d.updateWake()
	}
	return n
}

// pollAsync reads the adapter's asynchronous events.
func (d *Device) pollAsync() bool {
	var t C.int
	var obj C.uintptr_t
	for C.ibvx_async_event(d.ctx, &t, &obj) == 0 {
		switch t {
		case C.IBV_EVENT_CQ_ERR:
			for c := range d.cqs {
				if uintptr(unsafe.Pointer(c.c)) == uintptr(obj) {
					c.overflow()
				}
			}
		case C.IBV_EVENT_QP_FATAL, C.IBV_EVENT_QP_REQ_ERR, C.IBV_EVENT_QP_ACCESS_ERR:
			if q := d.byObject(uintptr(obj)); q != nil {
				q.asyncFailed(verbs.AsyncType(t))
			}
		case C.IBV_EVENT_COMM_EST:
			if q := d.byObject(uintptr(obj)); q != nil && q.id != nil && q.state == verbs.QPRTR {
				C.ibvx_notify(q.id.c) // the peer's last message of the set-up is late or lost
			}
		case C.IBV_EVENT_QP_LAST_WQE_REACHED:
			if q := d.byObject(uintptr(obj)); q != nil && q.dying {
				q.bury()
			}
		case C.IBV_EVENT_DEVICE_FATAL:
			d.removed(fmt.Errorf("ibv: %s failed: %w", d.name, ErrRemoved))
		}
	}
	d.settle()
	return true
}

func (d *Device) byObject(obj uintptr) *qp {
	for _, q := range d.qps {
		if q.c != nil && uintptr(unsafe.Pointer(q.c)) == obj {
			return q
		}
	}
	return nil
}

// removed ends every queue pair, because the device is gone.
func (d *Device) removed(err error) {
	if d.err != nil {
		return
	}
	d.err = fmt.Errorf("%w (%w)", err, unix.ENODEV)
	d.raise(verbs.AsyncEvent{Type: verbs.AsyncDeviceFatal, Err: d.err})
	for _, q := range d.qps {
		q.fail(d.err)
	}
}
