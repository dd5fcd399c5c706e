package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// cqe is a completion, and the slot that polling it gives back.
type cqe struct {
	wc   verbs.WC
	qp   *qp // nil: nothing to release
	pos  uint64
	recv bool
}

// cq implements verbs.CQ as a ring that grows up to its granted capacity.
type cq struct {
	dev        *Device
	cap        uint64
	overrun    bool
	e          []cqe // power of two
	head, tail uint64
	users      int
	arm        verbs.Arming
	fired      bool // an event was not taken yet
	gone       bool
}

// CreateCQ implements verbs.Device.
func (d *Device) CreateCQ(n int) (verbs.CQ, error) {
	if d.closed {
		return nil, errClosed
	}
	if err := checkCQE(n); err != nil {
		return nil, err
	}
	return &cq{dev: d, e: make([]cqe, ceilPow2(n)), cap: uint64(max(n, d.opt.MinCQE))}, nil
}

func checkCQE(n int) error {
	if n < 1 || n > maxCQE {
		return fmt.Errorf("soft: completion queue of %d entries, limit %d: %w", n, maxCQE, unix.EINVAL)
	}
	return nil
}

// Resize implements verbs.CQ. The ring grows as entries are used.
func (c *cq) Resize(n int) error {
	if c.gone || c.dev.closed {
		return errCQGone
	}
	if err := checkCQE(n); err != nil {
		return err
	}
	n = max(n, c.dev.opt.MinCQE)
	if queued := int(c.tail - c.head); n < queued {
		return fmt.Errorf("soft: %d entries for a completion queue that holds %d: %w", n, queued, unix.EINVAL)
	}
	c.cap = uint64(n)
	return nil
}

func ceilPow2(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}

// next returns the entry for a new completion, or nil if the completion is lost.
func (c *cq) next() *cqe {
	if c.overrun || c.tail-c.head >= c.cap {
		c.overflow()
		return nil
	}
	if c.tail-c.head == uint64(len(c.e)) {
		c.grow()
	}
	e := &c.e[c.tail&uint64(len(c.e)-1)]
	c.tail++
	return e
}

// overflow ends the queue. Its queue pairs end at the next Progress.
func (c *cq) overflow() {
	if !c.overrun {
		c.overrun = true
		c.dev.overruns = append(c.dev.overruns, c)
		c.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncCQErr, CQ: c})
		c.dev.updateWake(false)
	}
}

var errCQGone = fmt.Errorf("soft: completion queue is gone: %w", unix.EINVAL)

var errOverrun = fmt.Errorf("soft: completion queue overflow: %w", unix.ENOSPC)

// failOverrun ends the queue pairs of queues that have overflowed.
func (d *Device) failOverrun() {
	for len(d.overruns) > 0 {
		c := d.overruns[0]
		d.overruns = d.overruns[1:]
		for _, q := range d.qps {
			if q != nil && (q.scq == c || q.rcq == c) {
				q.fail(&fault{overflow: true, err: errOverrun})
			}
		}
	}
	d.overruns = nil
}

// disown makes polling the completions of q release nothing of q.
func (c *cq) disown(q *qp) {
	for i := c.head; i != c.tail; i++ {
		if e := &c.e[i&uint64(len(c.e)-1)]; e.qp == q {
			e.qp = nil
		}
	}
}

// Cap implements verbs.CQ.
func (c *cq) Cap() int { return int(c.cap) }

// Notified implements verbs.CQ.
func (c *cq) Notified() bool {
	was := c.fired
	if was {
		c.fired = false
		c.dev.fired--
		c.dev.updateWake(c.dev.dirty.N > 0)
	}
	return was
}

func (c *cq) grow() {
	bigger := make([]cqe, 2*len(c.e))
	for i := c.head; i != c.tail; i++ {
		bigger[i&uint64(len(bigger)-1)] = c.e[i&uint64(len(c.e)-1)]
	}
	c.e = bigger
}

// notify is called for each completion added.
func (c *cq) notify(solicited bool) {
	if c.arm.Take(solicited) && !c.fired {
		c.fired = true
		c.dev.fired++
		c.dev.updateWake(false)
	}
}

// Poll implements verbs.CQ.
func (c *cq) Poll(wc []verbs.WC) int {
	n := 0
	for n < len(wc) && c.head != c.tail {
		e := &c.e[c.head&uint64(len(c.e)-1)]
		wc[n] = e.wc
		if e.qp != nil {
			e.qp.release(e.pos, e.recv)
			e.qp = nil
		}
		c.head++
		n++
	}
	return n
}

// ReqNotify implements verbs.CQ.
func (c *cq) ReqNotify(solicitedOnly bool) error {
	if c.gone || c.dev.closed {
		return errCQGone
	}
	c.arm.Request(solicitedOnly)
	return nil
}

// Destroy implements verbs.CQ: EBUSY while a QP uses it.
func (c *cq) Destroy() error {
	if c.gone {
		return errCQGone
	}
	if c.users > 0 {
		return fmt.Errorf("soft: completion queue in use by %d queue pairs: %w", c.users, unix.EBUSY)
	}
	c.Notified()
	c.arm = verbs.Unarmed
	c.gone = true
	c.dev.async.forget(func(e *verbs.AsyncEvent) bool { return e.CQ == c })
	c.e, c.head, c.tail = make([]cqe, 1), 0, 0
	return nil
}
