package soft

import "github.com/rdsd/rdsd/verbs/soft/iwarp"

// A siw responder may have left the first frames in its socket, where only more
// data make it look: what arrives between its reply and its switch to the new
// connection, which takes as long as its processor is busy otherwise. So an
// initiator that hears nothing repeats its first frame, a WRITE of nothing,
// after startNs and each time after twice as long. A peer that only receives is
// never heard; so there is an end to it.
const (
	startNs   = 20e6
	maxNudges = 7 // the last after 2.5 s
)

func (q *qp) nudge() {
	if q.heard {
		return
	}
	if !q.sq.mid() && !q.serve.mid {
		q.dev.stats.StartNudges++
		q.sendRTR()
	}
	if q.nudges++; q.nudges < maxNudges {
		q.startTimer(timerStart, startNs<<q.nudges)
	}
}

// servedDepth returns how many READs and atomics of the peer may wait. Linux siw
// rounds the depth that it was granted up to a power of two, and uses all of that.
func (q *qp) servedDepth() uint64 {
	s := &q.serve
	if q.known || s.limit == 0 {
		return s.limit
	}
	return uint64(ceilPow2(int(s.limit)))
}

// staleAnswer takes the segment at hand of the response to a fence, or to a READ of
// no bytes, although it has data. If a READ of no bytes comes while Linux siw is
// sending, siw answers it with what it sent or asked for last. That acknowledges as
// well as no data would. The data is dropped.
func (q *qp) staleAnswer() bool {
	h := &q.rx.h
	if !q.stale(h) || h.Payload() == 0 && !h.Last {
		return false
	}
	if q.dev.nowhere == nil {
		q.dev.nowhere = &parked{b: make([]byte, iwarp.MaxULPDU)}
	}
	q.rx.to = target{aside: q.dev.nowhere}
	if h.Payload() > 0 {
		q.dev.stats.StaleAnswers++
	}
	return true
}

// staleSum takes f, a whole FPDU with a wrong CRC, if it is a segment as in
// staleAnswer. If siw asked for something last, the stale data is the sink of that
// READ. It is written while siw sends it: siw first computes the checksum of the
// memory and then has TCP copy it, and a response may come in between. The
// acknowledgement does not depend on the data. All fields of the header that matter
// have the values they must have, except the length; if that were wrong, the next
// FPDU's CRC would be wrong, too.
func (q *qp) staleSum(f []byte) bool {
	var h iwarp.Header
	s := &q.sq
	if s.waits.empty() || iwarp.ParseHeader(f, &h) != nil || h.Op != iwarp.OpReadResponse || h.Payload() == 0 {
		return false
	}
	w := s.waits.oldest()
	if w.kind == waitAtomic || w.kind == waitRead && s.at(w.pos).length > 0 || !q.stale(&h) {
		return false
	}
	q.dev.stats.StaleCRC++
	return true
}

// stale reports whether siw could send h, the header of a Read Response, for the
// oldest READ, which has no bytes.
func (q *qp) stale(h *iwarp.Header) bool {
	s := &q.sq
	return !q.known && h.STag == sinkSTag(s.waits.oldest().msn) && h.TO == s.readOff
}
