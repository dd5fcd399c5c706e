package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// input is the receiving half of a QP: stage[r:w] are bytes of the stream not
// yet consumed. While a large payload is read in place, its header has been
// consumed and left bytes of it are to come.
type input struct {
	stage []byte // nil while r == w
	r, w  int
	bulk  bool // the last payload was worth reading in place, the next may be

	placing bool
	left    int          // payload bytes missing
	trailer int          // pad and CRC behind them
	h       iwarp.Header // of the segment being placed
	to      target

	sendMSN uint32  // of the SEND expected or under way
	recv    *recvWR // its receive, nil between messages
	aside   *parked // or what it is put aside in
	recvOff uint64  // bytes of it placed
	imm     uint32  // Immediate Data for the SEND that follows
	hasImm  bool
	written uint64 // bytes of the WRITE under way, or of the last

	writeSTag uint32 // a WRITE of several segments is under way ...
	writeTO   uint64 // ... and goes on here
	writeMid  bool
}

// target is where a segment's payload goes, from off on: a region, an SGL, or
// what is put aside.
type target struct {
	mr    *mr
	key   uint32 // that the region had
	addr  uint64
	aside *parked
	sgl   []verbs.SGE
	pd    *pd
	off   uint64
}

// receive reads and handles up to maxBurst bytes.
func (q *qp) receive() bool {
	x, io := &q.rx, &q.dev.io
	did := false
	for budget := maxBurst; budget > 0 && q.state == verbs.QPRTS && !q.stalled && !q.eof && q.fault == nil; {
		iovs, direct, ok := q.direct()
		if !ok {
			return true
		}
		if x.stage == nil {
			x.stage = q.dev.getStage()
		}
		if x.r > 0 {
			x.w = copy(x.stage, x.stage[x.r:x.w])
			x.r = 0
		}
		room := q.readSize(direct)
		io.set(iovs, x.stage[x.w:x.w+room])
		n, again, err := io.recvmsg(q.fd, iovs+1)
		io.forget(iovs + 1)
		if err != nil {
			q.lost(err)
			return true
		}
		if n == 0 && !again {
			q.ended()
			return true
		}
		if again {
			break
		}
		did = true
		q.heard = true
		budget -= n
		q.dev.stats.BytesIn += uint64(n)
		q.dev.stats.CallsIn++
		inPlace := min(n, direct)
		if t := q.dev.opt.Tap; t != nil {
			q.tapIn(t, inPlace, n-inPlace)
		}
		x.left -= inPlace
		x.to.off += uint64(inPlace)
		x.w += n - inPlace
		q.parse()
		if n < direct+room {
			break
		}
	}
	if x.r == x.w {
		q.dropStage()
	}
	return did
}

// readSize is how much to read into the stage, behind direct bytes in place.
// As much as there may be, except in a stream of large payloads: what is read
// beyond the frame at hand would have to be copied.
func (q *qp) readSize(direct int) int {
	x := &q.rx
	switch {
	case q.crc || direct == 0 && !x.bulk:
		return maxBurst
	case direct > 0 && !x.h.Last:
		return x.trailer + iwarp.TaggedLen // the next segment's header
	case direct > 0:
		return bulkTail
	case x.placing:
		return x.left + x.trailer + bulkTail
	case x.w >= iwarp.LenField:
		return max(iwarp.FPDUSize(iwarp.ULPDULen(x.stage))-x.w, 0) + bulkTail
	}
	return bulkTail
}

func (q *qp) dropStage() {
	x := &q.rx
	x.r, x.w = 0, 0
	if x.stage != nil {
		q.dev.putStage(x.stage)
		x.stage = nil
	}
}

// direct sets up the scratch's iovecs for the payload being placed, if enough
// of it is missing, and returns their number and bytes. false: the QP failed.
func (q *qp) direct() (iovs, n int, ok bool) {
	x := &q.rx
	if !x.placing || x.left < directMin {
		return 0, 0, true
	}
	ps, ok := q.locate(x.left)
	if !ok {
		return 0, 0, false
	}
	for i := range ps {
		q.dev.io.set(i, ps[i].mem)
	}
	return len(ps), x.left, true
}

// locate finds the memory of the next n bytes of the payload. false: there is
// none, and the QP has failed for it.
func (q *qp) locate(n int) ([]piece, bool) {
	t := &q.rx.to
	if t.aside != nil {
		ps := q.dev.io.pieces[:1]
		ps[0] = piece{mem: t.aside.b[t.off : t.off+uint64(n)]}
		return ps, true
	}
	if t.mr == nil {
		ps, ok := q.resolve(t.sgl, t.pd, t.off, uint64(n), verbs.AccessLocalWrite)
		if !ok {
			q.sinkFault()
		}
		return ps, ok
	}
	if t.mr.dead || t.mr.key != t.key {
		q.refuse(iwarp.TermTaggedSTag, nil)
		return nil, false
	}
	ps := q.dev.io.pieces[:1]
	ps[0] = piece{t.mr.slice(t.addr+t.off, uint64(n)), t.mr}
	return ps, true
}

// place copies payload to where it goes.
func (q *qp) place(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	ps, ok := q.locate(len(b))
	if !ok {
		return false
	}
	q.rx.to.off += uint64(len(b))
	for i := range ps {
		b = b[copy(ps[i].mem, b):]
	}
	return true
}

// parse handles all whole FPDUs in the stage, and the beginning of a large
// one.
func (q *qp) parse() {
	x := &q.rx
	for q.state == verbs.QPRTS && !q.stalled && q.fault == nil {
		b := x.stage[x.r:x.w]
		if x.placing {
			if !q.continuePayload(b) {
				break
			}
			continue
		}
		if len(b) < iwarp.LenField {
			break
		}
		size := iwarp.FPDUSize(iwarp.ULPDULen(b))
		if len(b) < size {
			if q.crc || size-len(b) < directMin || len(b) < iwarp.TaggedLen || len(b) < iwarp.HeaderLen(b[2]) {
				break
			}
			if !q.begin(b) {
				break
			}
			n := x.h.Len()
			x.placing = true
			x.left = x.h.Payload()
			x.trailer = size - n - x.left
			x.r += n
			continue
		}
		if !q.frame(b[:size]) {
			break
		}
		x.r += size
	}
	if x.r == x.w {
		q.dropStage()
	}
}

// frame handles the whole FPDU f. false: it was not consumed.
func (q *qp) frame(f []byte) bool {
	if q.crc && !iwarp.CheckCRC(f) {
		q.dev.stats.CRCErrors++
		q.refuse(iwarp.TermCRC, nil)
		return false
	}
	if !q.begin(f) {
		return false
	}
	x := &q.rx
	n := x.h.Payload()
	x.bulk = n >= bulkMin
	switch x.h.Op {
	case iwarp.OpReadRequest, iwarp.OpTerminate, iwarp.OpImmediate, iwarp.OpImmediateSE, iwarp.OpAtomicRequest, iwarp.OpAtomicResponse:
		return true // complete with its header
	}
	return q.place(f[x.h.Len():x.h.Len()+n]) && q.end()
}

// continuePayload goes on with a payload whose header was consumed. false:
// more input is needed, or the QP failed.
func (q *qp) continuePayload(b []byte) bool {
	x := &q.rx
	if x.left > 0 {
		k := min(x.left, len(b))
		if k == 0 || !q.place(b[:k]) {
			return false
		}
		x.left -= k
		x.r += k
		return true
	}
	if len(b) < x.trailer {
		return false
	}
	x.r += x.trailer // without CRC nothing in it is checked
	x.placing = false
	x.bulk = x.h.Payload() >= bulkMin
	return q.end()
}

// begin checks the segment at the start of f, of which at least the header is
// there, and finds out where its payload goes. What is whole with its header is
// handled. false: the QP stalled or failed.
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
		ok = q.immediate(f)
	case iwarp.OpTerminate:
		q.terminated(f)
	default:
		q.refuse(iwarp.TermOpcode, f)
	}
	if !ok {
		return false
	}
	q.dev.stats.FramesIn++
	if q.hold {
		q.hold = false // the initiator has spoken
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

// inOrder checks that an untagged message of queue 0 is the next one, or its
// segment.
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
	if s.waits.oldest().kind == waitFence {
		x.to = target{}
		if n == 0 && h.Last {
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

// request queues a READ or atomic of the peer. What it names is checked here,
// so that nothing behind a bad one is delivered, and again when its turn comes.
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
	case s.tail-s.head+q.park.requests() >= s.limit:
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

// serveRead queues a READ of the peer, of which b is the RDMAP header.
func (q *qp) serveRead(b []byte, msn uint32) bool {
	r := served{msn: msn}
	r.Parse(b)
	if r.Size > 0 { // RFC 5040 section 5.2.1: otherwise unchecked
		if _, _, bad := q.access(r.SrcSTag, r.SrcTO, uint64(r.Size), verbs.AccessRemoteRead, false); bad != 0 {
			q.refuse(bad.read(), r.frame())
			return false
		}
	}
	q.serve.push(&r)
	q.dev.markDirty(q)
	return true
}

// deliver completes the receive of a whole SEND.
func (q *qp) deliver(w *recvWR, n uint64, op uint8, inv, msn uint32) bool {
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
	if x.hasImm {
		wc.Flags, wc.Imm = wc.Flags&^verbs.WCWithInv|verbs.WCWithImm, x.imm
		x.hasImm = false
	}
	x.recv = nil
	q.completeRecv(w, wc, op == iwarp.OpSendSE || op == iwarp.OpSendSEInv)
	return true
}

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
				q.deliver(w, n, h.Op, h.InvSTag, h.MSN)
			}
		}
	case iwarp.OpReadResponse:
		s := &q.sq
		s.readOff += uint64(h.Payload())
		if h.Last {
			q.answered()
		}
	}
	return q.state == verbs.QPRTS
}

func (q *qp) tapIn(t Tap, inPlace, staged int) {
	x := &q.rx
	if inPlace > 0 {
		ps, _ := q.locate(x.left)
		n := inPlace
		for i := range ps {
			k := min(n, len(ps[i].mem))
			t.Stream(q.local, q.remote, false, ps[i].mem[:k])
			n -= k
		}
	}
	t.Stream(q.local, q.remote, false, x.stage[x.w:x.w+staged])
}
