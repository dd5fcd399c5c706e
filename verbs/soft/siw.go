package soft

import "github.com/rdsd/rdsd/verbs/soft/iwarp"

// servedDepth is how many READs and atomics of the peer may wait. Linux siw
// rounds the depth it was granted up to a power of two, as the ring is, and uses
// all of that.
func (q *qp) servedDepth() uint64 {
	s := &q.serve
	if q.known || s.limit == 0 {
		return s.limit
	}
	return uint64(len(s.r))
}

// staleAnswer takes the segment at hand, of the response to a fence, although
// it has data. Linux siw answers a READ of no bytes with what it sent last when
// the request comes while it is sending. That is as good an acknowledgement; the
// data goes nowhere.
func (q *qp) staleAnswer() bool {
	h, s := &q.rx.h, &q.sq
	if q.known || h.STag != sinkSTag(s.waits.oldest().msn) || h.TO != s.readOff || h.Payload() == 0 && !h.Last {
		return false
	}
	if q.dev.nowhere == nil {
		q.dev.nowhere = &parked{b: make([]byte, iwarp.MaxULPDU)}
	}
	q.rx.to = target{aside: q.dev.nowhere}
	return true
}
