package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// begin checks the segment at the start of f, which has at least the whole header,
// and finds out where the payload goes. It handles a segment that is whole with its
// header. It returns false if the QP stalled or failed.
func (q *qp) begin(f []byte) bool {
	x := &q.rx
	h := &x.h
	if err := iwarp.ParseHeader(f, h); err != nil {
		q.refuse(headerFault(err, h), f)
		return false
	}
	ok := false
	switch h.Op {
	case iwarp.OpSend, iwarp.OpSendSE, iwarp.OpSendInv, iwarp.OpSendSEInv:
		ok = q.beginSend(f)
	case iwarp.OpWrite:
		ok = q.beginWrite(f)
	case iwarp.OpReadResponse:
		ok = q.beginResponse(f)
	case iwarp.OpReadRequest, iwarp.OpAtomicRequest:
		ok = q.request(f)
	case iwarp.OpAtomicResponse:
		ok = q.atomicResponse(f)
	case iwarp.OpImmediate, iwarp.OpImmediateSE:
		ok = q.immediateData(f)
	case iwarp.OpTerminate:
		q.terminated(f)
	default:
		q.refuse(iwarp.TermOpcode, f)
	}
	if !ok {
		return false
	}
	q.dev.stats.FramesIn++
	q.carries(h.Payload())
	if q.state == unheard {
		q.become(open) // the initiator has spoken
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncCommEst, QP: q})
		q.dev.markDirty(q)
	}
	return true
}

func headerFault(err error, h *iwarp.Header) iwarp.Code {
	switch err {
	case iwarp.ErrDDPVersion:
		if h.Tagged {
			return iwarp.TermTaggedVersion
		}
		return iwarp.TermUntaggedVersion
	case iwarp.ErrRDMAPVersion:
		return iwarp.TermRDMAPVersion
	case iwarp.ErrOpcode:
		return iwarp.TermOpcode
	}
	return iwarp.TermFraming
}

// inOrder checks that an untagged message of queue 0 is the next one, or that this
// is the next segment of it.
func (q *qp) inOrder(f []byte) bool {
	x := &q.rx
	h := &x.h
	switch {
	case h.QN != iwarp.QNSend:
		q.refuse(iwarp.TermQN, f)
	case h.MSN != x.sendMSN:
		q.refuse(iwarp.TermMSN, f)
	case uint64(h.MO) != x.recvOff:
		q.refuse(iwarp.TermMO, f)
	default:
		return true
	}
	return false
}

func (q *qp) beginSend(f []byte) bool {
	x := &q.rx
	h := &x.h
	if !q.inOrder(f) {
		return false
	}
	n := h.Payload()
	if x.recv == nil && x.aside == nil {
		if q.park.empty() {
			x.recv = q.takeRecv()
		}
		if x.recv == nil {
			if q.park.empty() && (q.paused() || !q.starving && !q.wantRecv(f)) {
				return false
			}
			if x.aside = q.putAside(h, n); x.aside == nil {
				return false
			}
			x.aside.imm, x.imm = x.imm, immediate{}
		}
	}
	if p := x.aside; p != nil {
		if q.park.bytes+n > parkBytes {
			q.stall()
			return false
		}
		q.park.grow(p, n)
		x.to = target{aside: p, off: x.recvOff}
		return true
	}
	if x.recvOff+uint64(n) > x.recv.total {
		q.recvFault(verbs.WCLocLenErr, iwarp.TermTooLong, f)
		return false
	}
	x.to = target{sgl: x.recv.sgl, pd: q.recvPD(), off: x.recvOff}
	return true
}

func (q *qp) beginWrite(f []byte) bool {
	x := &q.rx
	h := &x.h
	n := uint64(h.Payload())
	x.to = target{}
	if !x.writeMid {
		x.written = 0
	}
	x.written += n
	if n == 0 {
		x.writeMid = x.writeMid && !h.Last
		return true // unchecked, by RFC 5041 section 5.2
	}
	begun := x.writeMid && h.STag == x.writeSTag && h.TO == x.writeTO
	_, m, bad := q.access(h.STag, h.TO, n, verbs.AccessRemoteWrite, begun)
	if bad != 0 {
		q.refuse(bad.write(), f)
		return false
	}
	q.moved(m, n, 0)
	x.to = target{mr: m, key: m.key, addr: h.TO}
	x.writeMid, x.writeSTag, x.writeTO = !h.Last, h.STag, h.TO+n
	return true
}

func (q *qp) beginResponse(f []byte) bool {
	x, s := &q.rx, &q.sq
	h := &x.h
	if s.waits.empty() || s.waits.oldest().kind == waitAtomic {
		q.refuse(iwarp.TermOpcode, f)
		return false
	}
	n := uint64(h.Payload())
	k := s.waits.oldest().kind
	if k == waitRead && s.at(s.waits.oldest().pos).length == 0 && q.staleAnswer() {
		return true
	}
	if k == waitFence || k == waitRoom {
		x.to = target{}
		if n == 0 && h.Last || q.staleAnswer() {
			return true
		}
		q.refused(iwarp.TermTaggedBounds, f, fault{sq: verbs.WCBadRespErr})
		return false
	}
	w := s.at(s.waits.oldest().pos)
	bad := iwarp.Code(0)
	switch {
	case n == 0 && w.length == 0:
	case h.STag != sinkSTag(w.msn):
		bad = iwarp.TermTaggedSTag
	case h.TO != s.readOff || s.readOff+n > w.length || h.Last != (s.readOff+n == w.length):
		bad = iwarp.TermTaggedBounds
	}
	if bad == 0 && n == 0 && !h.Last {
		bad = iwarp.TermTaggedBounds
	}
	if bad != 0 {
		q.readFault(verbs.WCBadRespErr, bad, f)
		return false
	}
	x.to = target{sgl: w.sgl, pd: q.pd, off: s.readOff}
	return true
}

// end finishes the segment whose payload has been placed.
func (q *qp) end() bool {
	x := &q.rx
	h := &x.h
	switch h.Op {
	case iwarp.OpSend, iwarp.OpSendSE, iwarp.OpSendInv, iwarp.OpSendSEInv:
		x.recvOff += uint64(h.Payload())
		if h.Last {
			w, p, n := x.recv, x.aside, x.recvOff
			x.aside, x.recvOff = nil, 0
			x.sendMSN++
			if p != nil {
				p.whole = true
			} else {
				imm := x.imm
				x.imm = immediate{}
				q.deliver(w, n, imm, h.Op, h.InvSTag, h.MSN)
			}
		}
	case iwarp.OpReadResponse:
		s := &q.sq
		s.readOff += uint64(h.Payload())
		if h.Last {
			q.answered()
		}
	}
	return q.state.connected()
}

// deliver completes the receive of a whole SEND.
func (q *qp) deliver(w *recvWR, n uint64, imm immediate, op uint8, inv, msn uint32) bool {
	x := &q.rx
	wc := verbs.WC{ByteLen: uint32(n)}
	if op == iwarp.OpSendInv || op == iwarp.OpSendSEInv {
		if c := q.invalidate(inv); c != 0 {
			f := make([]byte, iwarp.UntaggedLen)
			iwarp.PutUntagged(f, op, true, int(min(n, iwarp.MaxPayload)), inv, iwarp.QNSend, msn, 0)
			q.recvFault(verbs.WCRemInvReqErr, c, f)
			return false
		}
		wc.Flags, wc.Imm = verbs.WCWithInv, inv
	}
	if imm.is {
		wc.Flags, wc.Imm = wc.Flags&^verbs.WCWithInv|verbs.WCWithImm, imm.value
	}
	x.recv = nil
	q.completeRecv(w, wc, op == iwarp.OpSendSE || op == iwarp.OpSendSEInv)
	return true
}
