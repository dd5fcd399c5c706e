package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// generate makes FPDUs until a burst is pending or nothing more may go. The send
// queue and the READs being served take turns, message by message: segments of
// different messages are not mixed, because some peers refuse that.
func (q *qp) generate() {
	if !q.state.sends() {
		return
	}
	q.out.lends = q.lends(&q.out.share)
	for q.out.pending < maxBurst {
		made := q.fence(false)
		switch {
		case made:
		case q.serve.mid:
			made = q.makeResponse()
		case q.sq.mid(), q.serve.last:
			made = q.makeSend()
			if !made && (!q.sq.mid() || q.sq.room == roomAsked) {
				made = q.makeResponse()
			}
		default:
			made = q.makeResponse() || q.makeSend()
		}
		if !made && !q.fence(true) {
			break
		}
	}
	if q.state == terminating && (q.serve.empty() || q.sq.mid()) {
		q.fail(q.fault)
	}
}

// mid reports whether the request at gen was begun and is not finished.
func (s *sendQueue) mid() bool {
	return s.gen != s.tail && s.at(s.gen).begun && s.at(s.gen).status == 0
}

// makeSend makes one FPDU of the send queue. It returns false if none may or can go
// now.
func (q *qp) makeSend() bool {
	s := &q.sq
	if s.gen == s.tail || q.state == terminating || s.gen == q.closeAt {
		return false
	}
	w := s.at(s.gen)
	if w.status != 0 {
		return false
	}
	if !w.begun {
		if q.drain != flowing && q.closeAt == never || q.intake == ended || w.flags&verbs.SendFence != 0 && s.reads > 0 || !q.window(w) {
			return false
		}
		if st := q.possible(w); st != 0 {
			return q.failLocally(w, st)
		}
	}
	if !q.makeOne(w) {
		return false
	}
	if !w.begun {
		w.begun = true
		q.opened(w)
	}
	q.serve.last = false
	if w.made {
		w.end = q.out.total
		s.gen++
		q.stats.Sent++
		if q.attr.Ack == verbs.AckRemote && !w.op.Reads() {
			s.unfenced++
			s.unfencedBytes += w.length
		}
	}
	return true
}

// possible returns the status of a fault of w that can be seen only at its turn; 0
// if it has none.
func (q *qp) possible(w *sendWR) verbs.WCStatus {
	switch {
	case w.length > maxMsg:
		return verbs.WCLocLenErr
	case w.op.Reads() && q.sq.depth == 0, // posted before the peer granted none
		w.op.Atomic() && !q.peer.Atomics,
		(w.op == verbs.OpSendWithImm || w.op == verbs.OpRDMAWriteWithImm) && !q.peer.Immediate:
		return verbs.WCLocQPOpErr
	}
	return 0
}

// failLocally marks w, which fails when everything before it is complete.
func (q *qp) failLocally(w *sendWR, st verbs.WCStatus) bool {
	w.status = st
	q.dev.markDirty(q)
	return false
}

// makeOne makes one FPDU of w, or carries out a request that needs no FPDU.
func (q *qp) makeOne(w *sendWR) bool {
	switch w.op {
	case verbs.OpRDMARead:
		return q.makeReadRequest(w)
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return q.makeAtomic(w)
	case verbs.OpLocalInv:
		w.made = q.invalidate(w.imm) == 0
		return w.made || q.failLocally(w, verbs.WCMWBindErr)
	case verbs.OpBindMW:
		w.made = q.bind(&q.sq.extra[q.sq.gen&uint64(len(q.sq.w)-1)].bind)
		return w.made || q.failLocally(w, verbs.WCMWBindErr)
	case verbs.OpSendWithImm:
		if !w.begun {
			return q.makeImmediate(w, immediateOfSend)
		}
	case verbs.OpRDMAWriteWithImm:
		if w.placed {
			w.made = q.makeImmediate(w, immediateOfWrite)
			return w.made
		}
	}
	return q.makeSegment(w)
}

// segment returns the length of the next segment of a message that has left bytes to
// go. It makes no more segments than necessary, all about as long: a short one at
// the end would be below the length that a receiver reads in place.
func segment(left, most uint64) uint64 {
	if left <= most {
		return left
	}
	count := (left + most - 1) / most
	const align = 64
	return min(((left+count-1)/count+align-1)&^(align-1), most)
}

func (q *qp) makeSegment(w *sendWR) bool {
	write := w.op == verbs.OpRDMAWrite || w.op == verbs.OpRDMAWriteWithImm
	n := segment(w.length-w.off, q.maxPayload)
	if !write && q.pauses(w, n) {
		return false
	}
	var ps []piece
	if w.flags&verbs.SendInline != 0 {
		ps = q.dev.io.pieces[:1]
		ps[0] = piece{mem: q.sq.inlineOf(q.sq.gen)[:n]}
	} else {
		var ok bool
		if ps, ok = q.resolve(w.sgl, q.pd, w.off, n, 0); !ok {
			return q.failLocally(w, verbs.WCLocProtErr)
		}
	}
	last := w.off+n == w.length
	hdr := &q.dev.io.hdr
	h := iwarp.TaggedLen
	if write {
		stag := w.rkey
		if w.length == 0 && stag == 0 {
			stag = 1 // unchecked, but some adapters dislike 0
		}
		iwarp.PutTagged(hdr[:], iwarp.OpWrite, last, int(n), stag, w.raddr+w.off)
	} else {
		op, inv := uint8(iwarp.OpSend), uint32(0)
		if w.op == verbs.OpSendWithInv {
			op, inv = iwarp.OpSendInv, w.imm
		}
		if w.flags&verbs.SendSolicited != 0 {
			op += iwarp.OpSendSE - iwarp.OpSend
		}
		h = iwarp.UntaggedLen
		iwarp.PutUntagged(hdr[:], op, last, int(n), inv, iwarp.QNSend, q.sq.sendMSN, uint32(w.off))
	}
	if !q.emit(hdr[:h], ps, int(n)) {
		return false
	}
	w.off += n
	w.made = last && w.op != verbs.OpRDMAWriteWithImm
	w.placed = last
	if !write {
		w.msn = q.sq.sendMSN
		if last {
			q.sq.sendMSN++
			q.sq.room = roomUnknown
		}
	}
	return true
}

// sinkSTag returns the name of the sink of a READ on the wire. The response is
// matched with the oldest READ, so the name needs no key of a region, and the peer
// learns none.
func sinkSTag(msn uint32) uint32 { return msn | 1<<31 }

func (q *qp) makeReadRequest(w *sendWR) bool {
	s := &q.sq
	if s.reads >= s.depth || s.waits.full() {
		return false
	}
	if _, ok := q.resolve(w.sgl, q.pd, 0, w.length, verbs.AccessLocalWrite); !ok {
		return q.failLocally(w, verbs.WCLocProtErr)
	}
	f := q.dev.io.hdr[:iwarp.UntaggedLen+iwarp.ReadReqLen]
	iwarp.PutUntagged(f, iwarp.OpReadRequest, true, iwarp.ReadReqLen, 0, iwarp.QNRead, s.readMSN, 0)
	r := iwarp.ReadRequest{SinkSTag: sinkSTag(s.readMSN), Size: uint32(w.length), SrcSTag: w.rkey, SrcTO: w.raddr}
	if r.Size == 0 && r.SrcSTag == 0 {
		r.SrcSTag = 1
	}
	r.Put(f[iwarp.UntaggedLen:])
	if !q.emit(f, nil, 0) {
		return false
	}
	w.msn, w.made = s.readMSN, true
	s.issued(wait{pos: s.gen, kind: waitRead})
	return true
}
