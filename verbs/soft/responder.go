package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// responder serves the peer's READs and atomics, in order.
type responder struct {
	r          []served // ring, power of two, grows up to limit
	head, tail uint64
	limit      uint64 // IRD
	msn        uint32 // expected next
	atomicMSN  uint32 // of the next Atomic Response
	mid        bool   // a response is begun and not finished
	last       bool   // the last FPDU was a response's
}

type served struct {
	iwarp.ReadRequest
	areq   iwarp.AtomicRequest
	atomic bool
	ran    bool   // the atomic was done, its answer found no room
	old    uint64 // what it found
	msn    uint32
	off    uint64
}

func (s *responder) init(ird int) {
	s.limit = uint64(ird)
	s.msn, s.atomicMSN = 1, 1
}

func (s *responder) empty() bool { return s.head == s.tail }

func (s *responder) push(r *served) {
	if s.tail-s.head == uint64(len(s.r)) {
		ring := make([]served, max(2*len(s.r), firstWaits))
		for i := s.head; i != s.tail; i++ {
			ring[i&uint64(len(ring)-1)] = s.r[i&uint64(len(s.r)-1)]
		}
		s.r = ring
	}
	s.r[s.tail&uint64(len(s.r)-1)] = *r
	s.tail++
}

// request queues a READ or atomic of the peer. The memory it names is checked here,
// so that nothing behind a bad request is delivered, and again at its turn.
func (q *qp) request(f []byte) bool {
	h, s := &q.rx.h, &q.serve
	size := iwarp.ReadReqULPDU
	if h.Op == iwarp.OpAtomicRequest {
		size = iwarp.AtomicReqULPDU
	}
	switch {
	case h.Op == iwarp.OpAtomicRequest && !q.known:
		q.refuse(iwarp.TermOpcode, f) // not negotiated
	case h.QN != iwarp.QNRead:
		q.refuse(iwarp.TermQN, f)
	case h.MSN != s.msn:
		q.refuse(iwarp.TermMSN, f)
	case h.MO != 0:
		q.refuse(iwarp.TermMO, f)
	case !h.Last || h.ULPDU != size:
		q.refuse(iwarp.TermTooLong, f)
	case s.tail-s.head+q.park.requests() >= q.servedDepth():
		q.refuse(iwarp.TermStream, f) // more than negotiated
	default:
		b := f[iwarp.UntaggedLen : iwarp.LenField+size]
		s.msn++
		switch {
		case !q.park.empty(): // RFC 5040 section 5.5: not before what is ahead of it
			q.park.q = append(q.park.q, &parked{op: h.Op, whole: true, msn: h.MSN, b: append([]byte(nil), b...)})
			q.park.bytes += len(b)
			return true
		case h.Op == iwarp.OpAtomicRequest:
			return q.serveAtomic(b, h.MSN)
		}
		return q.serveRead(b, h.MSN)
	}
	return false
}

// serveRead queues a READ of the peer. b is its RDMAP header.
func (q *qp) serveRead(b []byte, msn uint32) bool {
	r := served{msn: msn}
	r.Parse(b)
	if r.Size > 0 { // RFC 5040 section 5.2.1: otherwise unchecked
		if _, _, bad := q.access(r.SrcSTag, r.SrcTO, uint64(r.Size), verbs.AccessRemoteRead, false); bad != 0 {
			q.refuse(bad.read(), r.frame())
			return false
		}
	}
	q.push(&r)
	q.dev.markDirty(q)
	return true
}

// push queues a request to be served.
func (q *qp) push(r *served) {
	if q.serve.push(r); len(q.serve.r) > firstWaits {
		q.trimLater()
	}
}

// makeResponse makes one FPDU of the READ response that is due. It checks the source
// again before each segment, because the region may have ended.
func (q *qp) makeResponse() bool {
	s := &q.serve
	if s.empty() {
		return false
	}
	r := &s.r[s.head&uint64(len(s.r)-1)]
	if r.atomic {
		return q.makeAtomicResponse(r)
	}
	size := uint64(r.Size)
	n := segment(size-r.off, q.maxPayload)
	ps := q.dev.io.pieces[:0]
	var from *mr
	if size > 0 {
		b, m, bad := q.access(r.SrcSTag, r.SrcTO, size, verbs.AccessRemoteRead, r.off > 0)
		if bad != 0 {
			q.refuseServed(r, bad.read())
			return false
		}
		ps, from = append(ps, piece{b[r.off : r.off+n], m}), m
	}
	last := r.off+n == size
	hdr := q.dev.io.hdr[:iwarp.TaggedLen]
	iwarp.PutTagged(hdr, iwarp.OpReadResponse, last, int(n), r.SinkSTag, r.SinkTO+r.off)
	if !q.emit(hdr, ps, int(n)) {
		return false
	}
	if from != nil {
		q.moved(from, 0, n)
	}
	r.off += n
	s.mid, s.last = !last, true
	if last {
		s.head++
	}
	return true
}
