//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// cqe is a completion and what is released when it is polled.
type cqe struct {
	wc   verbs.WC
	qp   *qp // nil if there is nothing to release
	srq  *srq
	pos  uint64 // position in the queue pair's send or receive queue, or the slot of srq
	recv bool
}

// cq implements verbs.CQ. It is a ring of completions: those taken from the adapter's
// queue, put in order, and those flushed in this package. The adapter's queue is larger
// than the caller's size, so that an overflow is noticed here.
type cq struct {
	dev        *Device
	c          *C.struct_ibv_cq
	hw         int
	cap        uint64
	e          []cqe // power of two
	head, tail uint64
	users      int
	arm        verbs.Arming
	fired      bool // an event has not been taken yet
	overrun    bool
	gone       bool
}

const leastHW = 512

// CreateCQ implements verbs.Device.
func (d *Device) CreateCQ(n int) (verbs.CQ, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	if err := d.checkCQE(n); err != nil {
		return nil, err
	}
	c := &cq{dev: d, cap: uint64(n), hw: min(max(n+extraSlots, leastHW), int(d.limits.max_cqe)), e: make([]cqe, ceilPow2(n))}
	var e C.int
	if c.c = C.ibvx_create_cq(d.ctx, C.int(c.hw), d.channel, &e); c.c == nil {
		return nil, errno(e, "completion queue")
	}
	d.cqs[c] = struct{}{}
	return c, nil
}

func (d *Device) checkCQE(n int) error {
	if limit := int(d.limits.max_cqe) - extraSlots; n < 1 || n > limit {
		return invalid("completion queue of %d entries, limit %d", n, limit)
	}
	return nil
}

func ceilPow2(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}

var errCQGone = invalid("the completion queue is gone")

// Cap implements verbs.CQ.
func (c *cq) Cap() int { return int(c.cap) }

// Resize implements verbs.CQ.
func (c *cq) Resize(n int) error {
	if c.gone || c.dev.closed {
		return errCQGone
	}
	if err := c.dev.checkCQE(n); err != nil {
		return err
	}
	c.stage()
	if queued := int(c.tail - c.head); n < queued {
		return invalid("%d entries for a completion queue that holds %d", n, queued)
	}
	if n > c.hw {
		if e := C.ibv_resize_cq(c.c, C.int(n)); e != 0 {
			return errno(abs(e), fmt.Sprintf("resizing a completion queue to %d entries", n))
		}
		c.hw = n
	}
	c.cap = uint64(n)
	return nil
}

func abs(e C.int) C.int { return max(e, -e) }

// pull takes all completions from the adapter. Queue pairs that fail by them are left in
// d.failing.
func (c *cq) pull() {
	d := c.dev
	for !c.gone && !d.closed {
		n := int(C.ibvx_poll(c.c, d.b))
		for i := range max(n, 0) {
			d.handle(c, &d.wcs[i])
		}
		if n < batch {
			return
		}
	}
}

// stage takes all completions and settles the queue pairs that failed.
func (c *cq) stage() {
	c.pull()
	c.dev.settle()
}

// add appends a completion. It makes an event if the queue is armed for it.
func (c *cq) add(e cqe) {
	if c.gone {
		return
	}
	if c.overrun || c.tail-c.head >= c.cap {
		c.overflow()
		return
	}
	if c.tail-c.head == uint64(len(c.e)) {
		bigger := make([]cqe, 2*len(c.e))
		for i := c.head; i != c.tail; i++ {
			bigger[i&uint64(len(bigger)-1)] = c.e[i&uint64(len(c.e)-1)]
		}
		c.e = bigger
	}
	c.e[c.tail&uint64(len(c.e)-1)] = e
	c.tail++
	if c.arm.Take(e.wc.Status != verbs.WCSuccess) {
		c.fire()
	}
}

// fire makes an event, unless one has not been taken yet.
func (c *cq) fire() {
	if !c.fired {
		c.fired = true
		c.dev.fired++
		c.dev.updateWake()
	}
}

// event handles an event of the adapter. It may be for another queue.
func (c *cq) event() {
	if c.arm == verbs.Unarmed || c.gone {
		return
	}
	before := c.tail
	c.stage()
	switch {
	case c.tail != before && c.arm == verbs.ArmedSolicited:
		c.arm = verbs.Unarmed
		c.fire()
	case c.arm != verbs.Unarmed: // the event was for another queue, or for a request of this package
		c.rearm()
	}
}

func (c *cq) rearm() {
	C.ibvx_arm(c.c, b2i(c.arm == verbs.ArmedSolicited))
}

func b2i(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// overflow ends the queue and its queue pairs.
func (c *cq) overflow() {
	if c.overrun {
		return
	}
	c.overrun = true
	c.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncCQErr, CQ: c})
	for _, q := range c.dev.qps {
		if q.scq == c || q.rcq == c {
			c.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncQPFatal, QP: q, Err: errOverrun})
			q.fail(errOverrun)
		}
	}
}

var errOverrun = fmt.Errorf("ibv: completion queue overflow: %w", unix.ENOSPC)

// Poll implements verbs.CQ.
func (c *cq) Poll(wc []verbs.WC) int {
	if len(wc) == 0 || c.gone || c.dev.closed {
		return 0
	}
	if c.tail-c.head < uint64(len(wc)) {
		c.stage()
	}
	n := 0
	for n < len(wc) && c.head != c.tail {
		e := &c.e[c.head&uint64(len(c.e)-1)]
		wc[n] = e.wc
		switch {
		case e.srq != nil:
			e.srq.release(uint32(e.pos))
		case e.qp != nil && e.recv:
			e.qp.rq.free = max(e.qp.rq.free, e.pos+1)
		case e.qp != nil:
			e.qp.free = max(e.qp.free, e.pos+1)
		}
		e.qp, e.srq = nil, nil
		c.head++
		n++
	}
	return n
}

// disown makes the completions of q release nothing of it.
func (c *cq) disown(q *qp) {
	for i := c.head; i != c.tail; i++ {
		if e := &c.e[i&uint64(len(c.e)-1)]; e.qp == q {
			e.qp = nil
		}
	}
}

// ReqNotify implements verbs.CQ. Completions that are there already make no event. Later
// ones do, even if the adapter had them before it was armed.
func (c *cq) ReqNotify(solicitedOnly bool) error {
	if c.gone || c.dev.closed {
		return errCQGone
	}
	c.stage()
	c.arm.Request(solicitedOnly)
	if e := C.ibvx_arm(c.c, b2i(c.arm == verbs.ArmedSolicited)); e != 0 {
		c.arm = verbs.Unarmed
		return errno(e, "arming a completion queue")
	}
	if c.arm == verbs.ArmedAny {
		c.stage() // for completions between the two: the adapter made no event for them
	}
	return nil
}

// Notified implements verbs.CQ.
func (c *cq) Notified() bool {
	if c.gone || c.dev.closed {
		return false
	}
	if c.arm != verbs.Unarmed && !c.fired {
		c.dev.pollChannel()
	}
	was := c.fired
	if was {
		c.fired = false
		c.dev.fired--
		c.dev.updateWake()
	}
	return was
}

// Destroy implements verbs.CQ.
func (c *cq) Destroy() error {
	if c.gone || c.dev.closed {
		return errCQGone
	}
	if c.users > 0 {
		return fmt.Errorf("ibv: the completion queue is in use by %d queue pairs: %w", c.users, unix.EBUSY)
	}
	c.Notified()
	c.arm = verbs.Unarmed
	if e := C.ibv_destroy_cq(c.c); e != 0 {
		return errno(abs(e), "destroying a completion queue")
	}
	c.gone = true
	delete(c.dev.cqs, c)
	c.dev.forget(func(e *verbs.AsyncEvent) bool { return e.CQ == c })
	return nil
}
