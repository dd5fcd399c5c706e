package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// source of FPDUs: the send queue or the READs being served.
type source uint8

const (
	fromSQ source = iota + 1
	fromReads
)

// generate makes FPDUs until a burst is pending or nothing may go. The two
// sources take turns message by message: segments of different messages are
// not mixed, for some peers refuse that.
func (q *qp) generate() {
	if q.state != verbs.QPRTS || q.hold {
		return
	}
	for q.out.pending < maxBurst {
		var made bool
		switch {
		case q.serve.mid:
			made = q.makeResponse()
		case q.sq.mid(), q.serve.last:
			made = q.makeSend()
			if !made && !q.sq.mid() {
				made = q.makeResponse()
			}
		default:
			made = q.makeResponse() || q.makeSend()
		}
		if !made {
			break
		}
	}
	if q.fault != nil && (q.serve.empty() || q.sq.mid()) {
		q.fail(q.fault)
	}
}

// mid says that the WR at gen has been begun and not finished.
func (s *sendQueue) mid() bool {
	return s.gen != s.tail && s.at(s.gen).off > 0 && s.at(s.gen).status == 0
}

// makeSend makes one FPDU of the send queue. false: none may or can go now.
func (q *qp) makeSend() bool {
	s := &q.sq
	if s.gen == s.tail || q.fault != nil || q.closing && s.gen == q.closeAt {
		return false
	}
	w := s.at(s.gen)
	if w.status != 0 || w.off == 0 && w.flags&verbs.SendFence != 0 && s.reads > 0 {
		return false
	}
	if w.length > maxMsg {
		w.status = verbs.WCLocLenErr
		q.dev.markDirty(q)
		return false
	}
	var ok bool
	if w.op == verbs.OpRDMARead {
		ok = q.makeReadRequest(w)
	} else {
		ok = q.makeSegment(w)
	}
	if !ok {
		return false
	}
	q.serve.last = false
	if w.made {
		w.end = q.out.total
		s.gen++
	}
	return true
}

func (q *qp) makeSegment(w *sendWR) bool {
	n := min(w.length-w.off, iwarp.MaxPayload)
	var ps []piece
	if w.flags&verbs.SendInline != 0 {
		ps = q.dev.io.pieces[:1]
		ps[0] = piece{mem: q.sq.inlineOf(q.sq.gen)[:n]}
	} else {
		var ok bool
		if ps, ok = q.resolve(w.sgl, q.pd, w.off, n, 0); !ok {
			w.status = verbs.WCLocProtErr
			q.dev.markDirty(q)
			return false
		}
	}
	last := w.off+n == w.length
	hdr := &q.dev.io.hdr
	h := iwarp.TaggedLen
	if w.op == verbs.OpRDMAWrite {
		stag := w.rkey
		if w.length == 0 && stag == 0 {
			stag = 1 // unchecked, but some adapters dislike 0
		}
		iwarp.PutTagged(hdr[:], iwarp.OpWrite, last, int(n), stag, w.raddr+w.off)
	} else {
		op := uint8(iwarp.OpSend)
		if w.flags&verbs.SendSolicited != 0 {
			op = iwarp.OpSendSE
		}
		h = iwarp.UntaggedLen
		iwarp.PutUntagged(hdr[:], op, last, int(n), 0, iwarp.QNSend, q.sq.sendMSN, uint32(w.off))
	}
	if !q.emit(hdr[:h], ps, int(n)) {
		return false
	}
	w.off += n
	w.made = last
	if w.op == verbs.OpSend {
		w.msn = q.sq.sendMSN
		if last {
			q.sq.sendMSN++
		}
	}
	return true
}

// sinkSTag names the sink of a READ on the wire. The response is matched with
// the oldest READ, so it needs no key of a region, and the peer learns none.
func sinkSTag(msn uint32) uint32 { return msn | 1<<31 }

func (q *qp) makeReadRequest(w *sendWR) bool {
	s := &q.sq
	if s.depth == 0 { // posted before the peer granted none
		w.status = verbs.WCLocQPOpErr
		q.dev.markDirty(q)
		return false
	}
	if s.reads >= s.depth {
		return false
	}
	if _, ok := q.resolve(w.sgl, q.pd, 0, w.length, verbs.AccessLocalWrite); !ok {
		w.status = verbs.WCLocProtErr
		q.dev.markDirty(q)
		return false
	}
	f := &q.dev.io.hdr
	iwarp.PutUntagged(f[:], iwarp.OpReadRequest, true, iwarp.ReadReqLen, 0, iwarp.QNRead, s.readMSN, 0)
	r := iwarp.ReadRequest{SinkSTag: sinkSTag(s.readMSN), Size: uint32(w.length), SrcSTag: w.rkey, SrcTO: w.raddr}
	if r.Size == 0 && r.SrcSTag == 0 {
		r.SrcSTag = 1
	}
	r.Put(f[iwarp.UntaggedLen:])
	if !q.emit(f[:], nil, 0) {
		return false
	}
	if s.reads == 0 {
		s.readPos, s.readOff = s.gen, 0
	}
	w.msn = s.readMSN
	s.readMSN++
	s.reads++
	w.made = true
	return true
}

// oldestRead is the READ whose response is due. There must be one.
func (s *sendQueue) oldestRead() *sendWR {
	for {
		w := s.at(s.readPos)
		if w.op == verbs.OpRDMARead && !w.done {
			return w
		}
		s.readPos++
	}
}

// responder serves the peer's READs, in order.
type responder struct {
	r          []served // ring, power of two
	head, tail uint64
	limit      uint64 // IRD
	msn        uint32 // expected next
	mid        bool   // a response is begun and not finished
	last       bool   // the last FPDU was a response's
}

type served struct {
	iwarp.ReadRequest
	msn uint32
	off uint64
}

func (s *responder) init(ird int) {
	s.r = make([]served, ceilPow2(max(ird, 1)))
	s.limit = uint64(ird)
	s.msn = 1
}

func (s *responder) empty() bool { return s.head == s.tail }

func (s *responder) push(r *iwarp.ReadRequest, msn uint32) {
	s.r[s.tail&uint64(len(s.r)-1)] = served{ReadRequest: *r, msn: msn}
	s.tail++
}

// makeResponse makes one FPDU of the READ response that is due. The source is
// checked again before each segment, for the region may have gone.
func (q *qp) makeResponse() bool {
	s := &q.serve
	if s.empty() {
		return false
	}
	r := &s.r[s.head&uint64(len(s.r)-1)]
	size := uint64(r.Size)
	n := min(size-r.off, iwarp.MaxPayload)
	ps := q.dev.io.pieces[:0]
	if size > 0 {
		b, m, bad := q.access(r.SrcSTag, r.SrcTO, size, verbs.AccessRemoteRead, r.off > 0)
		if bad != 0 {
			q.refuseRead(r, bad.read())
			return false
		}
		ps = append(ps, piece{b[r.off : r.off+n], m})
	}
	last := r.off+n == size
	hdr := q.dev.io.hdr[:iwarp.TaggedLen]
	iwarp.PutTagged(hdr, iwarp.OpReadResponse, last, int(n), r.SinkSTag, r.SinkTO+r.off)
	if !q.emit(hdr, ps, int(n)) {
		return false
	}
	r.off += n
	s.mid, s.last = !last, true
	if last {
		s.head++
	}
	return true
}
