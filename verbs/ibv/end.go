//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// fail ends a queue pair for a reason that is not its owner's. settle carries it out,
// because ending takes completions itself.
func (q *qp) fail(err error) {
	if q.failing != nil || q.state == verbs.QPErr || q.state == verbs.QPReset || q.gone {
		return
	}
	q.failing = err
	q.dev.failing = append(q.dev.failing, q)
}

// settle ends the queue pairs for which fail was called.
func (d *Device) settle() {
	if d.settling || d.closed {
		return
	}
	d.settling = true
	for len(d.failing) > 0 {
		q := d.failing[0]
		d.failing = d.failing[1:]
		if !q.gone && q.failing != nil {
			q.die()
		}
	}
	d.failing = nil
	d.settling = false
	d.updateWake()
}

// end ends a queue pair at once. The owner's calls and the connection manager use it.
func (q *qp) end(err error) {
	q.fail(err)
	q.dev.settle()
}

const lastWQE = 30 * time.Millisecond

// die moves the queue pair to ERR and makes the events.
func (q *qp) die() {
	d, err := q.dev, q.failing
	q.failing = nil
	q.state = verbs.QPErr
	if q.c != nil {
		C.ibvx_to_err(q.c)
		q.scq.pull()
		q.rcq.pull()
	}
	if q.linked && !q.told && !q.byOwner {
		t := verbs.CMDisconnected
		if !q.established {
			t = verbs.CMConnectError
		}
		d.events = append(d.events, verbs.CMEvent{Type: t, QP: q, Err: err})
	}
	q.told = true
	if q.srq != nil && q.c != nil && q.established {
		// The adapter may still have a receive of the shared queue. Let it report that.
		q.dying = true
		d.after(lastWQE, func() {
			if q.dying {
				q.bury()
				d.settle()
			}
		})
		q.hangUp()
		return
	}
	q.bury()
}

// bury destroys the adapter's queue pair, so that nothing touches a buffer any more. Then
// it flushes the requests without an outcome.
func (q *qp) bury() {
	q.dying = false
	q.unmake()
	for q.done != q.tail {
		s := q.at(q.done)
		switch {
		case s.resolved && (s.status != verbs.WCSuccess || s.asked || q.failed):
			q.report(s, q.done, s.status)
		case (s.resolved || q.done < q.top && !s.reports) && !q.failed:
		default:
			q.report(s, q.done, verbs.WCWRFlushErr)
		}
		s.kept = nil
		q.done++
	}
	q.sent = q.tail
	for ; q.rq.done != q.rq.tail; q.rq.done++ {
		q.flushRecv(q.rq.done)
	}
	if q.srq != nil {
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncQPLastWQE, QP: q})
	}
	q.hangUp()
	q.dev.updateWake()
}

func (q *qp) flushRecv(pos uint64) {
	id := q.rq.ids[pos&uint64(len(q.rq.ids)-1)]
	q.rcq.add(cqe{wc: verbs.WC{WRID: id, Status: verbs.WCWRFlushErr, QPNum: q.num}, qp: q, pos: pos, recv: true})
}

// unmake destroys the adapter's queue pair and takes its last completions.
func (q *qp) unmake() {
	if q.c == nil {
		return
	}
	q.scq.pull()
	q.rcq.pull()
	if id := q.id; id != nil && id.asked && !q.established {
		// siw keeps a queue pair until the peer has answered, at most 10 s. Destroying the
		// queue pair now would wait for that.
		id.kind, id.late, id.qp = idLate, q.c, nil
		q.id, q.c = nil, nil
		delete(q.dev.qps, q.index)
		return
	}
	C.ibv_destroy_qp(q.c)
	q.c = nil
	q.scq.pull()
	q.rcq.pull()
	delete(q.dev.qps, q.index)
}

// hangUp disconnects, which notifies the peer.
func (q *qp) hangUp() {
	if q.id != nil {
		q.id.qp = nil
		q.id.drop()
		q.id = nil
	}
}

// asyncFailed handles the adapter's report that the queue pair failed.
func (q *qp) asyncFailed(t verbs.AsyncType) {
	if q.state == verbs.QPErr || q.failing != nil {
		return
	}
	err := fmt.Errorf("ibv: %v: %w", t, unix.ECONNABORTED)
	q.dev.raise(verbs.AsyncEvent{Type: t, QP: q, Err: err})
	q.fail(err)
}

// ToError implements verbs.QP.
func (q *qp) ToError() { q.toError() }

func (q *qp) toError() {
	if q.gone || q.dev.closed || q.state == verbs.QPErr || q.state == verbs.QPReset {
		if q.state == verbs.QPReset && !q.gone && !q.dev.closed {
			q.state = verbs.QPErr
		}
		return
	}
	q.byOwner = true
	if q.failing != nil { // settle carries it out
		q.dev.settle()
		return
	}
	q.end(errFlushed)
}

// Disconnect implements verbs.QP.
func (q *qp) Disconnect() {
	switch {
	case q.gone || q.dev.closed || q.closing || q.state == verbs.QPErr || q.state == verbs.QPReset:
		return
	case q.state != verbs.QPRTS && q.state != verbs.QPSQD:
		q.toError()
		return
	}
	q.closing = true
	q.mute = false
	q.state = verbs.QPRTS
	q.push()
	if !q.waiting() { // resume does the rest when the READs are complete
		q.mark()
	}
	q.dev.settle()
}

// mark posts a marker behind everything that is posted. drained is called when all requests
// before the marker are done.
func (q *qp) mark() {
	if q.marking && q.marker == q.sent {
		return
	}
	q.marking, q.marked, q.marker = true, false, q.sent
	flags := verbs.SendFence
	if q.dev.siw { // see waits; advance waits for the READs
		flags = 0
	}
	if err := q.postMarker(flags); err != nil {
		q.fail(err)
	}
}

// postMarker posts a WRITE of no bytes. It checks no key and uses no receive.
func (q *qp) postMarker(flags verbs.SendFlags) error {
	d := q.dev
	d.sends[0] = C.struct_ibvx_send{id: C.uint64_t(wrID(kindMarker, q.index, q.sent)), op: C.IBV_WR_RDMA_WRITE, flags: C.uint32_t(flags | verbs.SendSignaled)}
	var posted C.int
	if e := C.ibvx_post_send(q.c, d.b, 1, &posted); e != 0 {
		return errno(e, "posting a request of our own")
	}
	return nil
}

// drained: the requests that were at the adapter when mark was called are done.
func (q *qp) drained() {
	switch {
	case q.state == verbs.QPErr:
	case q.poisoned:
		q.poisoned = false
		s := q.at(q.sent)
		s.kept, s.resolved, s.status = nil, true, verbs.WCLocLenErr
		q.sent++
		q.top = q.sent
		q.advance()
	case q.closing:
		q.fail(fmt.Errorf("ibv: %w", verbs.ErrEnded))
	case q.state == verbs.QPSQD:
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncSQDrained, QP: q})
	}
}

// Modify implements verbs.QP.
func (q *qp) Modify(to verbs.QPState) error {
	switch {
	case q.dev.closed:
		return errClosed
	case q.gone:
		return errDestroyed
	case to == verbs.QPErr:
		q.toError()
		return nil
	case to == verbs.QPReset:
		q.reset()
		return nil
	case to == q.state && to != verbs.QPErr:
		return nil
	case to == verbs.QPInit && q.state == verbs.QPReset:
		return q.create()
	case to == verbs.QPSQD && q.state == verbs.QPRTS:
		q.state = verbs.QPSQD
		if !q.closing { // Disconnect has posted its own marker, which SQD does not stop
			q.mark()
		}
		q.dev.settle()
		return nil
	case to == verbs.QPRTS && q.state == verbs.QPSQD:
		q.state = verbs.QPRTS
		q.push()
		q.dev.settle()
		return nil
	}
	return invalid("from state %v to %v", q.state, to)
}

// reset makes the queue pair new, except for its number, which it gets in INIT.
func (q *qp) reset() {
	if q.state == verbs.QPReset {
		return
	}
	q.failing = nil
	q.scq.pull()
	q.rcq.pull()
	delete(q.dev.qps, q.index) // completions that the adapter flushes from here on are discarded
	q.unmake()
	q.hangUp()
	q.scq.disown(q)
	q.rcq.disown(q)
	q.dev.forget(func(e *verbs.AsyncEvent) bool { return e.QP == q })
	clear(q.w)
	n := qp{dev: q.dev, pd: q.pd, scq: q.scq, rcq: q.rcq, srq: q.srq, attr: q.attr, w: q.w, stats: q.stats, num: q.num}
	n.rq.ids, n.rq.cap = q.rq.ids, q.rq.cap
	*q = n
	q.state = verbs.QPReset
	q.dev.settle()
}

var errDestroyed = invalid("the queue pair is destroyed")

// Destroy implements verbs.QP.
func (q *qp) Destroy() error {
	if q.dev.closed {
		return errClosed
	}
	if q.gone {
		return errDestroyed
	}
	q.gone = true
	q.dying, q.failing = false, nil
	q.unmake()
	q.hangUp()
	q.scq.disown(q)
	q.rcq.disown(q)
	q.pd.used--
	q.scq.users--
	q.rcq.users--
	if q.srq != nil {
		q.srq.users--
	}
	q.state = verbs.QPErr
	q.dev.dropEvents(q)
	q.dev.forget(func(e *verbs.AsyncEvent) bool { return e.QP == q })
	q.dev.settle()
	return nil
}

// release ends the queue pair when its device is closed.
func (q *qp) release() {
	if q.c != nil {
		C.ibvx_to_err(q.c)
		C.ibv_destroy_qp(q.c)
		q.c = nil
	}
	q.gone = true
}

// invalid is EINVAL with what is wrong.
func invalid(format string, args ...any) error {
	return fmt.Errorf("ibv: "+format+": %w", append(args, unix.EINVAL)...)
}
