package soft

import (
	"fmt"

	"github.com/rdsd/rdsd/verbs"
)

// ended notes that the peer sends no more. It may still be waiting for answers to
// its READs and for what is being sent, which goes out first. What waits for
// receives may still get them, within a time limit.
func (q *qp) ended() {
	x := &q.rx
	if x.r != x.w || x.placing || x.recv != nil || x.aside != nil || q.state == unheard {
		q.lost(nil) // in the middle of something
		return
	}
	q.intake = ended
	q.listen()
	q.startTimer(timerLinger, int64(q.dev.opt.LingerTimeout))
	q.drained()
}

// drained ends a QP whose peer has ended its direction, when nothing is left to do.
func (q *qp) drained() {
	if q.intake == ended && q.state.connected() && q.park.empty() && q.serve.empty() && q.out.pending == 0 && !q.sq.mid() {
		q.fail(&fault{err: fmt.Errorf("soft: %w", verbs.ErrEnded), sq: verbs.WCRetryExcErr})
	}
}
