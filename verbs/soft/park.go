package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// A message without a receive is put aside, and with it what must not overtake
// it (later messages, Read and Atomic Requests), so that the stream goes on:
// WRITEs, and the answers our own requests wait for, may be behind it. Beyond
// these limits the stream is not read any more.
const (
	parkMsgs  = 256
	parkBytes = 1 << 20
)

// parked is one message put aside.
type parked struct {
	op       uint8
	whole    bool
	inv, msn uint32
	imm      immediate
	written  uint64 // Immediate: bytes of the WRITE before
	b        []byte // payload; of a request its RDMAP header
}

// parking is the queue of the messages put aside.
type parking struct {
	q     []*parked
	msgs  int
	bytes int
}

func (p *parking) empty() bool { return len(p.q) == 0 }

func (p *parking) pop() {
	x := p.q[0]
	p.bytes -= len(x.b)
	if x.op != iwarp.OpReadRequest && x.op != iwarp.OpAtomicRequest {
		p.msgs--
	}
	p.q[0] = nil
	p.q = p.q[1:]
	if len(p.q) == 0 {
		p.q = nil
	}
}

// requests returns how many Read and Atomic Requests are in the queue.
func (p *parking) requests() uint64 { return uint64(len(p.q) - p.msgs) }

// quote returns a frame that names the message that waits.
func (p *parking) quote() []byte {
	x := p.q[0]
	f := make([]byte, iwarp.UntaggedLen)
	iwarp.PutUntagged(f, x.op, true, min(len(x.b), iwarp.MaxPayload), x.inv, iwarp.QNSend, x.msn, 0)
	return f
}

// paused begins the pause before a message is put aside, unless it is over. The owner may be about
// to post receives, so it gets one more round.
func (q *qp) paused() bool {
	if q.intake == overdue {
		return false
	}
	q.intake = pausing
	q.dev.markReady(q)
	return true
}

// unpause continues after the pause.
func (q *qp) unpause() {
	q.intake = overdue
	if q.srq != nil && len(q.srq.posted) > 0 || q.rq.head != q.rq.tail {
		q.intake = reading
	}
	q.parse()
	if q.intake == overdue {
		q.intake = reading
	}
}

// wantRecv starts the wait for a receive. f is the first frame of the message. It
// returns false if the peer wants no wait; the QP then fails.
func (q *qp) wantRecv(f []byte) bool {
	q.stats.RNR++
	q.dev.stats.RNRWaits++
	if !q.startRNR(f) {
		return false
	}
	q.starve()
	return true
}

// startRNR starts the clock of the message that waits.
func (q *qp) startRNR(f []byte) bool {
	tries := q.peer.RNRRetry
	if !q.known || tries == 7 {
		return true // without limit
	}
	if tries == 0 {
		q.dev.stats.RNRExceeded++
		q.refuse(iwarp.TermNoBuffer, f)
		return false
	}
	q.startTimer(timerRNR, int64(tries)*q.attr.MinRNRTimer.Ns())
	return true
}

// starve notes that q waits for a receive.
func (q *qp) starve() {
	q.starving = true
	if q.srq != nil && !q.onSRQ.On() {
		q.srq.waiting.Add(&q.onSRQ, q)
	}
}

// fed notes that q waits for a receive no longer.
func (q *qp) fed() {
	q.starving = false
	q.stopTimer(timerRNR)
}

// fits reports whether another message of n bytes may be put aside.
func (p *parking) fits(n int) bool { return p.msgs < parkMsgs && p.bytes+n <= parkBytes }

// putAside begins a message that has n bytes so far. It returns nil if the message
// does not fit; reading then stops.
func (q *qp) putAside(h *iwarp.Header, n int) *parked {
	if !q.park.fits(n) {
		q.stall()
		return nil
	}
	x := &parked{op: h.Op, inv: h.InvSTag, msn: h.MSN}
	q.park.q = append(q.park.q, x)
	q.park.msgs++
	q.dev.stats.RNRParked++
	return x
}

// grow makes room for n more bytes of x.
func (p *parking) grow(x *parked, n int) {
	x.b = append(x.b, make([]byte, n)...)
	p.bytes += n
}

// unpark handles messages that were put aside, as far as there are receives.
func (q *qp) unpark() {
	if q.intake == pausing {
		q.unpause()
		return
	}
	if q.starving && q.srq == nil && q.rq.head == q.rq.tail {
		return
	}
	for !q.park.empty() && q.state.receives() {
		x := q.park.q[0]
		if !q.takeUp(x) {
			break
		}
	}
	if q.state.connected() && q.intake == full && q.park.fits(0) {
		q.resume()
	}
	q.drained()
}

// takeUp handles the head of the queue. It returns false if that has to go on
// waiting, or the QP failed.
func (q *qp) takeUp(x *parked) bool {
	switch x.op {
	case iwarp.OpReadRequest:
		q.park.pop()
		return q.serveRead(x.b, x.msn)
	case iwarp.OpAtomicRequest:
		q.park.pop()
		return q.serveAtomic(x.b, x.msn)
	}
	w := q.takeRecv()
	if w == nil {
		if !q.starving { // the one before was served, this one's wait begins
			if !q.startRNR(q.park.quote()) {
				return false
			}
		}
		q.starve()
		return false
	}
	q.fed()
	q.park.pop()
	if x.op == iwarp.OpImmediate || x.op == iwarp.OpImmediateSE {
		q.completeImmediate(w, immediateValue(x.b), x.written, x.op == iwarp.OpImmediateSE)
		return true
	}
	return q.takeUpSend(x, w)
}

// takeUpSend moves what has come of a SEND to its receive. The rest, if there is
// more, goes there directly.
func (q *qp) takeUpSend(x *parked, w *recvWR) bool {
	r := &q.rx
	r.recv = w
	n := uint64(len(x.b))
	if n > w.total {
		f := make([]byte, iwarp.UntaggedLen)
		iwarp.PutUntagged(f, x.op, true, min(len(x.b), iwarp.MaxPayload), x.inv, iwarp.QNSend, x.msn, 0)
		q.recvFault(verbs.WCLocLenErr, iwarp.TermTooLong, f)
		return false
	}
	have := x.b
	if !x.whole {
		r.aside, r.imm = nil, x.imm
		have = x.b[:r.recvOff]
		if r.placing && r.to.aside == x {
			have = x.b[:r.to.off]
		}
	}
	b := have
	ps, ok := q.resolve(w.sgl, q.recvPD(), 0, uint64(len(have)), verbs.AccessLocalWrite)
	if !ok {
		q.recvFault(verbs.WCLocProtErr, iwarp.TermDDPLocal, nil)
		return false
	}
	for i := range ps {
		b = b[copy(ps[i].mem, b):]
	}
	if x.whole {
		return q.deliver(w, n, x.imm, x.op, x.inv, x.msn)
	}
	if r.placing && r.to.aside == x {
		r.to = target{sgl: w.sgl, pd: q.recvPD(), off: uint64(len(have))}
	}
	return true
}

// resume continues to read after a stall.
func (q *qp) resume() {
	q.intake = reading
	q.listen()
	q.parse()
}
