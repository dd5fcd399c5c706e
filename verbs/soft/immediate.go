package soft

import (
	"encoding/binary"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// RFC 7306's Immediate Data is a message of its own with 8 opaque bytes. Verbs
// want 32 bits with a SEND or WRITE, and one receive for both. So the first
// four bytes are the value, and the others tell which: behind a WRITE, whose
// receive it takes, or before a SEND, with whose receive it is completed.
const (
	immediateOfWrite = 0
	immediateOfSend  = 1
)

// immediate is the value that came with a SEND, if there was one.
type immediate struct {
	value uint32
	is    bool
}

func immediateValue(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
func immediateKind(b []byte) uint32  { return binary.BigEndian.Uint32(b[4:]) }

// makeImmediate makes the Immediate Data message of w.
func (q *qp) makeImmediate(w *sendWR, kind uint32) bool {
	hdr := q.dev.io.hdr[:iwarp.UntaggedLen+iwarp.ImmediateLen]
	op := uint8(iwarp.OpImmediate)
	if w.flags&verbs.SendSolicited != 0 && kind == immediateOfWrite {
		op = iwarp.OpImmediateSE
	}
	iwarp.PutUntagged(hdr, op, true, iwarp.ImmediateLen, 0, iwarp.QNSend, q.sq.sendMSN, 0)
	binary.BigEndian.PutUint32(hdr[iwarp.UntaggedLen:], w.imm)
	binary.BigEndian.PutUint32(hdr[iwarp.UntaggedLen+4:], kind)
	if !q.emit(hdr, nil, 0) {
		return false
	}
	w.msn = q.sq.sendMSN
	q.sq.sendMSN++
	return true
}

// immediateData handles a whole Immediate Data message.
func (q *qp) immediateData(f []byte) bool {
	x := &q.rx
	h := &x.h
	switch {
	case !q.known:
		q.refuse(iwarp.TermOpcode, f) // not negotiated
		return false
	case !q.inOrder(f):
		return false
	case !h.Last || h.Payload() != iwarp.ImmediateLen || x.recv != nil || x.aside != nil:
		q.refuse(iwarp.TermTooLong, f)
		return false
	}
	b := f[iwarp.UntaggedLen : iwarp.UntaggedLen+iwarp.ImmediateLen]
	ofSend := immediateKind(b) == immediateOfSend
	if ofSend {
		if x.imm.is {
			q.refuse(iwarp.TermOpcode, f) // its SEND has not come
			return false
		}
		x.imm = immediate{immediateValue(b), true}
		x.sendMSN++
		return true
	}
	var w *recvWR
	if q.park.empty() {
		if w = q.takeRecv(); w == nil && (q.paused() || !q.starving && !q.wantRecv(f)) {
			return false
		}
	}
	if w != nil {
		q.completeImmediate(w, immediateValue(b), x.written, h.Op == iwarp.OpImmediateSE)
	} else {
		p := q.putAside(h, len(b))
		if p == nil {
			return false
		}
		p.whole, p.written = true, x.written
		q.park.grow(p, len(b))
		copy(p.b, b)
	}
	x.sendMSN++
	return true
}

// completeImmediate completes the receive of a WRITE_WITH_IMM.
func (q *qp) completeImmediate(w *recvWR, imm uint32, n uint64, solicited bool) {
	q.completeRecv(w, verbs.WC{Op: verbs.WCRecvRDMAWithImm, ByteLen: uint32(n), Imm: imm, Flags: verbs.WCWithImm}, solicited)
}
