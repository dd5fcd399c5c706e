package sim

import (
	"fmt"

	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// raise adds an asynchronous event if the owner has ever called PollAsync.
func (d *Device) raise(ev verbs.AsyncEvent) {
	if d.asyncOn && !d.dead {
		d.async = append(d.async, ev)
	}
}

// PollAsync implements verbs.Device.
func (d *Device) PollAsync(ev []verbs.AsyncEvent) int {
	if d.dead {
		return 0
	}
	d.asyncOn = true
	n := copy(ev, d.async)
	rest := copy(d.async, d.async[n:])
	clear(d.async[rest:])
	d.async = d.async[:rest]
	return n
}

// forgetAsync drops the events of an object that is being destroyed.
func (d *Device) forgetAsync(gone func(*verbs.AsyncEvent) bool) {
	keep := d.async[:0]
	for i := range d.async {
		if !gone(&d.async[i]) {
			keep = append(keep, d.async[i])
		}
	}
	clear(d.async[len(keep):])
	d.async = keep
}

// notice makes the event of an armed completion queue to which a completion was
// added.
func (c *CQ) notice(solicited bool) {
	if c.arm.Take(solicited) {
		c.fired = true
	}
}

// ReqNotify implements verbs.CQ.
func (c *CQ) ReqNotify(solicitedOnly bool) error {
	if c.gone || c.dev.dead {
		return fmt.Errorf("sim: ReqNotify: completion queue is gone: %w", unix.EINVAL)
	}
	c.arm.Request(solicitedOnly)
	return nil
}

// Notified implements verbs.CQ.
func (c *CQ) Notified() bool {
	was := c.fired
	c.fired = false
	return was
}

// Cap implements verbs.CQ.
func (c *CQ) Cap() int { return c.cap }

// Resize implements verbs.CQ.
func (c *CQ) Resize(n int) error {
	switch {
	case c.dev.dead:
		return c.dev.deadError("Resize")
	case c.gone:
		return c.dev.invalid("Resize", "completion queue destroyed")
	case n < max(c.n, 1) || n > maxCQE:
		return c.dev.invalid("Resize", fmt.Sprintf("%d entries, at least %d and at most %d", n, max(c.n, 1), maxCQE))
	}
	c.cap = n
	return nil
}

// Cap implements verbs.SRQ.
func (s *SRQ) Cap() int { return s.queue.cap }

// Resize implements verbs.SRQ.
func (s *SRQ) Resize(n int) error {
	d := s.pd.dev
	least := max(s.queue.outstanding, s.limit, 1)
	switch {
	case d.dead:
		return d.deadError("Resize")
	case s.gone:
		return d.invalid("Resize", "shared receive queue destroyed")
	case n < least || n > d.attr.MaxRecvWR:
		return d.invalid("Resize", fmt.Sprintf("%d receives, at least %d and at most %d", n, least, d.attr.MaxRecvWR))
	}
	s.queue.resize(n)
	return nil
}

// Limit implements verbs.SRQ.
func (s *SRQ) Limit(n int) error {
	if s.pd.dev.dead {
		return s.pd.dev.deadError("Limit")
	}
	if s.gone {
		return s.pd.dev.invalid("Limit", "shared receive queue destroyed")
	}
	if n < 0 || n > s.queue.cap {
		return s.pd.dev.invalid("Limit", fmt.Sprintf("%d receives, at most %d", n, s.queue.cap))
	}
	s.limit = n
	s.checkLimit()
	return nil
}

func (s *SRQ) checkLimit() {
	if s.queue.n < s.limit {
		s.limit = 0
		s.pd.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncSRQLimit, SRQ: s})
	}
}

// Stats implements verbs.QP.
func (q *QP) Stats() verbs.QPStats { return q.stats }

// Modify implements verbs.QP.
func (q *QP) Modify(to verbs.QPState) error {
	from := q.State()
	switch {
	case q.dev.dead:
		return q.dev.deadError("Modify")
	case q.destroyed:
		return q.dev.invalid("Modify", destroyed)
	case to == verbs.QPErr:
		q.ToError()
	case to == verbs.QPReset:
		q.reset()
	case to == from && (from == verbs.QPInit && q.setup == nil || from == verbs.QPRTS || from == verbs.QPSQD):
	case from == verbs.QPReset && to == verbs.QPInit:
		q.state = verbs.QPInit
	case from == verbs.QPRTS && to == verbs.QPSQD:
		q.sqd, q.sqDrained = true, false
		q.armTransmit() // notices when it is drained
	case from == verbs.QPSQD && to == verbs.QPRTS:
		q.sqd = false
		q.armTransmit()
	default:
		return q.dev.invalid("Modify", fmt.Sprintf("from state %v to %v", from, to))
	}
	return nil
}

// checkDrained raises AsyncSQDrained if q is in SQD and what was begun is done.
func (q *QP) checkDrained() {
	if q.state == verbs.QPRTS && q.sqd && !q.sqDrained && q.done == q.tx {
		q.sqDrained = true
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncSQDrained, QP: q})
	}
}

// reset makes q as new. What is in flight on the old connection must not reach it:
// the old connection goes on with a shell that has taken the place of q.
func (q *QP) reset() {
	if q.state == verbs.QPRTS {
		q.tellPeer(false)
	}
	q.setup.giveUp(q)
	if p := q.peer; p != nil {
		q.out.cut()
		q.resp.cut()
		p.cut()
		shell := &QP{dev: q.dev, num: q.num, state: verbs.QPErr, flushed: true, destroyed: true, peer: p}
		p.peer = shell
	}
	for _, c := range [...]*CQ{q.sendCQ, q.recvCQ} {
		c.disown(q)
	}
	if q.srq != nil {
		q.srq.forget(q)
	}
	q.life++
	q.peer, q.flushed, q.closing, q.sqd = nil, false, false, false
	q.released, q.done, q.tx, q.tail, q.readsOut = 0, 0, 0, 0, 0
	q.txArmed, q.doneArmed = false, false
	q.attr.Cap = q.asked
	q.recvq = newRecvQueue(q.asked.MaxRecvWR, q.asked.MaxRecvSGE)
	q.wire()
	q.state = verbs.QPReset
	q.dev.forgetEvents(q)
}

// disown makes polling the completions of q release nothing of q.
func (c *CQ) disown(q *QP) {
	for i := range c.n {
		if e := &c.q[(c.head+i)&(len(c.q)-1)]; e.qp == q {
			e.qp = nil
		}
	}
}

// forgetEvents drops the connection events of q.
func (d *Device) forgetEvents(q *QP) {
	keep := d.events[:0]
	for _, e := range d.events {
		if e.QP != q {
			keep = append(keep, e)
		}
	}
	clear(d.events[len(keep):])
	d.events = keep
}
