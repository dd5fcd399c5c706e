package sim

import (
	"encoding/binary"

	"github.com/rdsd/rdsd/verbs"
)

// request handles an arriving request. It returns false if the request has to wait
// for a receive.
func (q *QP) request(m *msg) bool {
	if q.state != verbs.QPRTS || q.dev.dead {
		return true
	}
	if q.passive {
		q.passive = false
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncCommEst, QP: q})
	}
	q.dev.net.note(traceDeliver, q.num, m.wrid)
	switch {
	case m.kind == msgFin:
		q.fail(verbs.WCRetryExcErr)
	case m.op.Reads():
		q.serveRead(m)
	case m.op == verbs.OpRDMAWrite:
		if q.place(m) {
			q.ack(m)
		}
	default:
		return q.receive(m)
	}
	return true
}

func (q *QP) ack(m *msg) {
	if q.peer.attr.Ack == verbs.AckRemote {
		q.resp.push(msg{kind: msgResponse, idx: m.idx, wrid: m.wrid})
	}
}

// refuse answers a request with an error and ends the QP.
func (q *QP) refuse(m *msg, status verbs.WCStatus) {
	q.resp.push(msg{kind: msgResponse, idx: m.idx, wrid: m.wrid, status: status})
	switch {
	case status == verbs.WCRemAccessErr:
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncQPAccessErr, QP: q})
	case status == verbs.WCRemInvReqErr && !takesReceive(m.op):
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncQPReqErr, QP: q})
	}
	q.fail(verbs.WCWRFlushErr)
}

// pass asks for a fault while request m of the peer is handled here.
func (q *QP) pass(k PointKind, m *msg) bool {
	return q.dev.net.pass(k, q.dev, q.peer, m.wrid)
}

// place carries out an RDMA WRITE.
func (q *QP) place(m *msg) bool {
	if m.length == 0 {
		return q.pass(BeforeWrite, m) && q.pass(AfterWritePlaced, m)
	}
	mem, status := q.remote(m, m.length, verbs.AccessRemoteWrite)
	if !q.pass(BeforeWrite, m) {
		if status == verbs.WCSuccess && !q.dev.dead {
			// The break may come in the middle of the data.
			n := q.dev.net.rand.tear.below(int64(m.length))
			copy(mem[:n], m.data)
		}
		return false
	}
	if status != verbs.WCSuccess {
		q.refuse(m, status)
		return false
	}
	copy(mem, m.data)
	q.moved(m.rkey, uint64(len(mem)), 0)
	return q.pass(AfterWritePlaced, m)
}

// receive carries out a SEND, or delivers the immediate data of a WRITE.
func (q *QP) receive(m *msg) bool {
	r := &q.recvq
	if q.srq != nil {
		r = &q.srq.queue
	}
	if r.n == 0 {
		if q.dev.attr.Caps&verbs.CapRNR == 0 {
			q.refuse(m, verbs.WCRNRRetryExcErr)
			return true
		}
		if q.rnrIdx != m.idx+1 {
			q.rnrIdx = m.idx + 1
			q.stats.RNR++
			if tries, limited := q.peer.attr.RNRRetry.Limit(); limited && q.dev.attr.Caps&verbs.CapRNRRetry != 0 {
				if tries == 0 {
					q.refuse(m, verbs.WCRNRRetryExcErr)
					return true
				}
				q.limitRNR(*m, int64(tries)*q.attr.MinRNRTimer.Ns())
			}
		}
		if q.srq != nil {
			q.srq.waiting = append(q.srq.waiting, q)
		}
		return false
	}
	if m.op == verbs.OpRDMAWriteWithImm && !q.place(m) || !q.pass(BeforeSendDelivered, m) {
		return true
	}
	wrid, sgl := r.take()
	q.rnrIdx = 0
	if q.srq != nil {
		r.outstanding--
		q.srq.checkLimit()
	}
	wc := verbs.WC{WRID: wrid, QPNum: q.num, Op: verbs.WCRecv, ByteLen: m.length}
	refusal := verbs.WCSuccess
	if m.op == verbs.OpRDMAWriteWithImm {
		wc.Op = verbs.WCRecvRDMAWithImm
	} else if room(sgl) < uint64(m.length) {
		wc.Status, refusal = verbs.WCLocLenErr, verbs.WCRemInvReqErr
	} else if !q.recvPD().scatter(sgl, m.data) {
		wc.Status, refusal = verbs.WCLocProtErr, verbs.WCRemOpErr
	}
	switch {
	case m.op == verbs.OpSendWithInv && refusal == verbs.WCSuccess:
		if q.invalidate(m.imm) {
			wc.Imm, wc.Flags = m.imm, verbs.WCWithInv
		} else {
			wc.Status, refusal = verbs.WCRemInvReqErr, verbs.WCRemInvReqErr
		}
	case m.op == verbs.OpRDMAWriteWithImm || m.op == verbs.OpSendWithImm:
		wc.Imm, wc.Flags = m.imm, verbs.WCWithImm
	}
	if wc.Status == verbs.WCSuccess {
		q.stats.Received++
	}
	q.completeRecv(wc, m.flags&verbs.SendSolicited != 0)
	if refusal != verbs.WCSuccess {
		q.refuse(m, refusal)
	} else if q.pass(AfterSendDelivered, m) {
		q.ack(m)
	}
	return true
}

// recvPD returns the protection domain of the memory of receives.
func (q *QP) recvPD() *PD {
	if q.srq != nil {
		return q.srq.pd
	}
	return q.pd
}

func room(sgl []verbs.SGE) (n uint64) {
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return n
}

func (q *QP) completeRecv(wc verbs.WC, solicited bool) {
	q.recvCQ.push(cqe{wc: wc, qp: q, recv: true, solicited: solicited})
}

// takesReceive reports whether op uses up a receive.
func takesReceive(op verbs.Opcode) bool {
	return op == verbs.OpSend || op == verbs.OpSendWithImm || op == verbs.OpSendWithInv || op == verbs.OpRDMAWriteWithImm
}

// limitRNR ends the wait of m for a receive after ns.
func (q *QP) limitRNR(m msg, ns int64) {
	life := q.life
	q.dev.net.after(ns, func() {
		if q.life == life && q.state == verbs.QPRTS && !q.dev.dead && q.rnrIdx == m.idx+1 {
			q.refuse(&m, verbs.WCRNRRetryExcErr)
		}
	})
}

// serveRead carries out a READ or an atomic.
func (q *QP) serveRead(m *msg) {
	before, after := BeforeReadSampled, AfterReadSampled
	if m.op != verbs.OpRDMARead {
		before, after = BeforeAtomic, AfterAtomic
	}
	if !q.pass(before, m) {
		return
	}
	answer := msg{kind: msgResponse, idx: m.idx, wrid: m.wrid}
	var mem []byte
	status := verbs.WCSuccess
	switch {
	case m.op != verbs.OpRDMARead:
		mem, status = q.remote(m, 8, verbs.AccessRemoteAtomic)
		if m.raddr%8 != 0 {
			status = verbs.WCRemInvReqErr
		}
	case m.length > 0:
		mem, status = q.remote(m, m.length, verbs.AccessRemoteRead)
	}
	if status != verbs.WCSuccess {
		q.refuse(m, status)
		return
	}
	answer.data = q.dev.net.bufs.get(len(mem))
	copy(answer.data, mem)
	if m.op != verbs.OpRDMARead {
		binary.LittleEndian.PutUint64(mem, apply(m.op, m.atomic, binary.LittleEndian.Uint64(mem)))
	} else if len(mem) > 0 {
		q.moved(m.rkey, 0, uint64(len(mem)))
	}
	if q.pass(after, m) {
		q.resp.push(answer)
	} else {
		q.dev.net.bufs.put(answer.data)
	}
}

// apply returns the value that an atomic stores at the target if the value there is
// old.
func apply(op verbs.Opcode, a *verbs.AtomicArgs, old uint64) uint64 {
	cmpMask, swapMask, addMask := ^uint64(0), ^uint64(0), uint64(0)
	if a.Masked {
		cmpMask, swapMask, addMask = a.CompareAddMask, a.SwapMask, a.CompareAddMask
	}
	if op == verbs.OpAtomicCmpAndSwp {
		if old&cmpMask != a.CompareAdd&cmpMask {
			return old
		}
		return old&^swapMask | a.Swap&swapMask
	}
	// Set mask bits are the tops of fields: no carry passes them. Adding
	// without the top bits cannot carry out of a field; the tops are xored in.
	return (old&^addMask + a.CompareAdd&^addMask) ^ (old^a.CompareAdd)&addMask
}
