package soft

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// atomicRequest returns an atomic in the form of the wire.
func atomicRequest(op verbs.Opcode, a *verbs.AtomicArgs) iwarp.AtomicRequest {
	const all = ^uint64(0)
	if op == verbs.OpAtomicFetchAdd {
		r := iwarp.AtomicRequest{Op: iwarp.AtomicFetchAdd, Data: a.CompareAdd, CompareMask: all}
		if a.Masked {
			r.DataMask = a.CompareAddMask
		}
		return r
	}
	r := iwarp.AtomicRequest{Op: iwarp.AtomicCmpSwap, Data: a.Swap, DataMask: all, Compare: a.CompareAdd, CompareMask: all}
	if a.Masked {
		r.DataMask, r.CompareMask = a.SwapMask, a.CompareAddMask
	}
	return r
}

// atomicPosted makes the immediate checks of an atomic.
func (q *qp) atomicPosted(wr *verbs.SendWR) error {
	switch {
	case q.sq.depth == 0:
		return fmt.Errorf("soft: atomic on a queue pair with read depth 0: %w", unix.EINVAL)
	case wr.Flags&verbs.SendInline != 0:
		return fmt.Errorf("soft: inline atomic: %w", unix.EINVAL)
	case len(wr.SGL) != 1 || wr.SGL[0].Length != 8:
		return fmt.Errorf("soft: atomic needs one SGE of 8 bytes: %w", unix.EINVAL)
	}
	return nil
}

// makeAtomic makes an Atomic Request. The request id is its MSN.
func (q *qp) makeAtomic(w *sendWR) bool {
	s := &q.sq
	if s.reads >= s.depth || s.waits.full() {
		return false
	}
	if _, ok := q.resolve(w.sgl, q.pd, 0, 8, verbs.AccessLocalWrite); !ok {
		return q.failLocally(w, verbs.WCLocProtErr)
	}
	r := s.extra[s.gen&uint64(len(s.w)-1)].atomic
	r.ID, r.STag, r.TO = s.readMSN, w.rkey, w.raddr
	f := q.dev.io.hdr[:iwarp.UntaggedLen+iwarp.AtomicReqLen]
	iwarp.PutUntagged(f, iwarp.OpAtomicRequest, true, iwarp.AtomicReqLen, 0, iwarp.QNRead, s.readMSN, 0)
	r.Put(f[iwarp.UntaggedLen:])
	if !q.emit(f, nil, 0) {
		return false
	}
	w.msn, w.made = s.readMSN, true
	s.issued(wait{pos: s.gen, kind: waitAtomic})
	return true
}

// atomicResponse handles a whole Atomic Response.
func (q *qp) atomicResponse(f []byte) bool {
	s, h := &q.sq, &q.rx.h
	if s.waits.empty() || s.waits.oldest().kind != waitAtomic {
		q.refuse(iwarp.TermOpcode, f)
		return false
	}
	x := s.waits.oldest()
	switch {
	case h.QN != iwarp.QNAtomic:
		q.readFault(verbs.WCBadRespErr, iwarp.TermQN, f)
	case h.MSN != s.atomicMSN:
		q.readFault(verbs.WCBadRespErr, iwarp.TermMSN, f)
	case h.MO != 0:
		q.readFault(verbs.WCBadRespErr, iwarp.TermMO, f)
	case !h.Last || h.Payload() != iwarp.AtomicRespLen:
		q.readFault(verbs.WCBadRespErr, iwarp.TermTooLong, f)
	default:
		id, old := iwarp.ParseAtomicResponse(f[iwarp.UntaggedLen:])
		if id != x.msn {
			q.readFault(verbs.WCBadRespErr, iwarp.TermMSN, f)
			return false
		}
		ps, ok := q.resolve(s.at(x.pos).sgl, q.pd, 0, 8, verbs.AccessLocalWrite)
		if !ok {
			q.readFault(verbs.WCLocProtErr, iwarp.TermLocal, nil)
			return false
		}
		binary.NativeEndian.PutUint64(ps[0].mem, old)
		s.atomicMSN++
		q.answered()
		return true
	}
	return false
}

// serveAtomic queues an atomic of the peer. b is its RDMAP header.
func (q *qp) serveAtomic(b []byte, msn uint32) bool {
	r := served{atomic: true, msn: msn}
	r.areq.Parse(b)
	if c := q.checkAtomic(&r.areq); c != 0 {
		q.refuseServed(&r, c)
		return false
	}
	q.push(&r)
	q.dev.markDirty(q)
	return true
}

func (q *qp) checkAtomic(r *iwarp.AtomicRequest) iwarp.Code {
	if r.Op != iwarp.AtomicFetchAdd && r.Op != iwarp.AtomicCmpSwap {
		return iwarp.TermOpcode
	}
	if _, _, bad := q.access(r.STag, r.TO, 8, verbs.AccessRemoteAtomic, false); bad != 0 {
		return bad.read()
	}
	if r.TO%8 != 0 {
		return iwarp.TermStream // RFC 7306 section 8
	}
	return 0
}

// makeAtomicResponse carries out the atomic that is due, once, and answers it.
func (q *qp) makeAtomicResponse(r *served) bool {
	s := &q.serve
	if !r.ran {
		if c := q.checkAtomic(&r.areq); c != 0 {
			q.refuseServed(r, c)
			return false
		}
		b, _, _ := q.access(r.areq.STag, r.areq.TO, 8, verbs.AccessRemoteAtomic, false)
		r.old, r.ran = runAtomic(&r.areq, b), true
	}
	hdr := q.dev.io.hdr[:iwarp.UntaggedLen+iwarp.AtomicRespLen]
	iwarp.PutUntagged(hdr, iwarp.OpAtomicResponse, true, iwarp.AtomicRespLen, 0, iwarp.QNAtomic, s.atomicMSN, 0)
	iwarp.PutAtomicResponse(hdr[iwarp.UntaggedLen:], r.areq.ID, r.old)
	if !q.emit(hdr, nil, 0) {
		return false
	}
	s.atomicMSN++
	s.last = true
	s.head++
	return true
}

// casTries limits how often a compare-and-swap of the processor is tried, so that a
// process that writes there without pause does not stop the device.
const casTries = 1 << 12

// runAtomic carries out r on the 8 bytes of b and returns their former value.
// Nothing else of the device runs at the same time. It is also atomic towards the
// atomic instructions of the processor, if b is aligned as its address on the wire
// says.
func runAtomic(r *iwarp.AtomicRequest, b []byte) (old uint64) {
	p := unsafe.Pointer(unsafe.SliceData(b[:8]))
	if uintptr(p)%8 == 0 {
		word := (*uint64)(p)
		for range casTries {
			old = atomic.LoadUint64(word)
			if atomic.CompareAndSwapUint64(word, old, r.Apply(old)) {
				return old
			}
		}
	}
	old = binary.NativeEndian.Uint64(b)
	binary.NativeEndian.PutUint64(b, r.Apply(old))
	return old
}
