package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// input is the receiving half of a QP. stage[r:w] are bytes of the stream that are
// not consumed. While a large payload is read in place, its header is consumed and
// left bytes of it are still to come.
type input struct {
	stage []byte // lent by the device; nil while r == w
	r, w  int
	bulk  bool // the last payload was worth reading in place, the next may be
	job   *job // a thread has all this, see follow.go; nil: none does

	placing bool
	left    int          // payload bytes missing
	trailer int          // pad and CRC behind them
	h       iwarp.Header // of the segment being placed
	to      target

	sendMSN uint32    // of the SEND expected or under way
	recv    *recvWR   // its receive, nil between messages
	aside   *parked   // or what it is put aside in
	recvOff uint64    // bytes of it placed
	imm     immediate // of the SEND that follows or is under way
	written uint64    // bytes of the WRITE under way, or of the last

	writeSTag uint32 // a WRITE of several segments is under way ...
	writeTO   uint64 // ... and goes on here
	writeMid  bool

	share
}

// target is where a segment's payload goes, from off on: a region, an SGL, or a
// message put aside.
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
	if q.tls != nil {
		return q.receiveSealed()
	}
	x, io := &q.rx, &q.dev.io
	did := false
	q.busy = true
	for budget := maxBurst; budget > 0 && q.state.receives() && q.intake.reads() && !q.held; {
		if q.follow() {
			return true
		}
		iovs, direct, ok := q.direct()
		if !ok {
			return true
		}
		q.wholeStage()
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
		q.metered(n)
		x.owes -= n
		inPlace := min(n, direct)
		if t := q.tap(); t != nil {
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
	q.leaveStage()
	return did
}

// leaveStage gives back the stage, except for what is not consumed.
func (q *qp) leaveStage() {
	x := &q.rx
	switch {
	case x.r == x.w:
		q.dropStage()
	case x.w-x.r <= smallStage:
		q.keepRest(q.dev.lent.getStage(smallStage))
	default:
		q.trimLater()
	}
}

// wholeStage makes room for a burst behind the bytes that are not consumed.
func (q *qp) wholeStage() {
	x := &q.rx
	switch {
	case len(x.stage) < stageSize:
		q.keepRest(q.dev.lent.getStage(stageSize))
	case x.r > 0:
		x.w = copy(x.stage, x.stage[x.r:x.w])
		x.r = 0
	}
}

// keepRest moves the bytes that are not consumed to another stage.
func (q *qp) keepRest(to []byte) {
	x := &q.rx
	n := copy(to, x.stage[x.r:x.w])
	q.dropStage()
	x.stage, x.w = to, n
}

// readSize returns how much to read into the stage, behind direct bytes in place. It
// is as much as fits, except in a stream of large payloads: bytes read beyond the
// frame at hand would have to be copied.
func (q *qp) readSize(direct int) int {
	x := &q.rx
	switch {
	case direct == 0 && !x.bulk || q.crc && !q.follows():
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
		q.dev.lent.putStage(x.stage)
		x.stage = nil
		q.dev.trimSoon()
	}
}

// direct sets up the scratch's iovecs for the payload that is being placed, if
// enough of it is to come, and returns their number and bytes. ok is false if the QP
// failed.
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

// locate returns the memory for the next n bytes of the payload. It returns false if
// there is none; the QP has then failed.
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
	for q.state.receives() && q.intake.reads() {
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
			x.bulk = x.bulk || size-len(b) >= directMin
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

// frame handles the whole FPDU f. It returns false if it did not consume f.
func (q *qp) frame(f []byte) bool {
	if q.crc && !iwarp.CheckCRC(f) && !q.staleSum(f) {
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

// continuePayload continues with a payload whose header was consumed. It returns
// false if more input is needed or the QP failed.
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

func (q *qp) tapIn(t Tap, inPlace, staged int) {
	x := &q.rx
	if inPlace > 0 {
		ps, _ := q.locate(x.left)
		n := inPlace
		for i := range ps {
			k := min(n, len(ps[i].mem))
			q.saw(t, false, ps[i].mem[:k])
			n -= k
		}
	}
	q.saw(t, false, x.stage[x.w:x.w+staged])
}
