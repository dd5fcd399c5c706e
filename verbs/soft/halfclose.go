package soft

import (
	"github.com/rdsd/rdsd/verbs"
)

// ended: the peer sends no more. What it still may be waiting for, answers to
// its READs and what is being sent, goes out first, and what waits for receives
// may still get them, but not for ever.
func (q *qp) ended() {
	x := &q.rx
	if x.r != x.w || x.placing || x.recv != nil || x.aside != nil || q.hold {
		q.lost(nil) // in the middle of something
		return
	}
	q.eof = true
	q.interest(q.events &^ unixIn)
	q.startTimer(timerDrain, int64(q.dev.opt.LingerTimeout))
	q.drained()
}

// drained ends a QP whose peer has ended, when nothing is left to do.
func (q *qp) drained() {
	if q.eof && q.state == verbs.QPRTS && q.park.empty() && q.serve.empty() && q.out.pending == 0 && !q.sq.mid() {
		q.lost(nil)
	}
}
