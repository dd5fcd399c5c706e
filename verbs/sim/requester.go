package sim

import "github.com/rdsd/rdsd/verbs"

// armTransmit makes the queue pair transmit a moment after a post.
func (q *QP) armTransmit() {
	if n := q.dev.net; !q.txArmed {
		q.txArmed = true
		n.after(n.rand.post.between(n.Timing.Post), q.fireTransmit)
	}
}

// transmit sends the requests that may be sent, with pauses in between.
func (q *QP) transmit() {
	q.txArmed = false
	n := q.dev.net
	for q.state == verbs.QPRTS && (!q.sqd || q.closing) && q.tx < q.tail && (!q.closing || q.tx < q.limit) {
		w := q.at(q.tx)
		if w.flags&verbs.SendFence != 0 && q.readsOut > 0 || w.op.Reads() && q.readsOut >= q.attr.Cap.ReadDepth {
			break // a response goes on with it
		}
		idx := q.tx
		q.tx++
		if !q.transmitOne(idx, w) {
			break
		}
		if n.rand.gap.below(4) == 0 {
			q.txArmed = true
			n.after(n.rand.gap.between(n.Timing.Gap), q.fireTransmit)
			break
		}
	}
	q.complete()
}

// transmitOne sends request idx. It returns false if the request failed at this
// side. The QP then ends when all requests before it have completed.
func (q *QP) transmitOne(idx uint64, w *sqe) bool {
	n := q.dev.net
	q.stats.Sent++
	if w.op == verbs.OpLocalInv || w.op == verbs.OpBindMW {
		w.isDone, w.doneAt = true, n.now
		if w.op == verbs.OpLocalInv && !q.invalidate(w.imm) || w.op == verbs.OpBindMW && !q.bind(w.bind) {
			w.status = verbs.WCMWBindErr
		}
		return w.status == verbs.WCSuccess
	}
	sgl := q.sgl(idx)
	m := msg{kind: msgRequest, op: w.op, flags: w.flags, idx: idx, wrid: w.wrid, rkey: w.rkey, raddr: w.raddr, imm: w.imm, atomic: w.atomic, length: w.length}
	status := verbs.WCSuccess
	switch {
	case w.length > q.dev.attr.MaxMsg:
		status = verbs.WCLocLenErr
	case w.flags&verbs.SendInline != 0:
		m.data, w.inline = w.inline, nil
	case w.op.Reads():
		if !q.pd.writable(sgl) {
			status = verbs.WCLocProtErr
		}
	default:
		m.data = n.bufs.get(int(w.length))
		if !q.pd.gather(m.data, sgl) {
			status = verbs.WCLocProtErr
		}
	}
	if status != verbs.WCSuccess {
		n.bufs.put(m.data)
		w.isDone, w.status, w.doneAt = true, status, n.now
		return false
	}
	n.note(traceSend, q.num, w.wrid)
	if w.op.Reads() {
		q.readsOut++
	} else if q.attr.Ack == verbs.AckLocal {
		w.isDone, w.doneAt = true, n.now+n.rand.local.between(n.Timing.Local)
	}
	q.out.push(m)
	return true
}

// complete reports finished requests, in order.
func (q *QP) complete() {
	n := q.dev.net
	for q.state == verbs.QPRTS && q.done < q.tx {
		w := q.at(q.done)
		if !w.isDone {
			return
		}
		if w.doneAt > n.now {
			if !q.doneArmed {
				q.doneArmed = true
				n.At(w.doneAt, q.fireDone)
			}
			return
		}
		if w.status != verbs.WCSuccess {
			q.fail(w.status)
			q.tellPeer(false)
			return
		}
		if !n.pass(BeforeCompletion, q.dev, q, w.wrid) {
			w.isDone = false // the answer is lost
			return
		}
		q.succeed(w)
	}
	q.checkDrained()
	if q.state == verbs.QPRTS && q.closing && q.done == q.limit {
		q.out.push(msg{kind: msgFin})
		q.fail(verbs.WCWRFlushErr)
	}
}

// succeed completes the request at done.
func (q *QP) succeed(w *sqe) {
	q.done++
	if w.flags&verbs.SendSignaled == 0 {
		return
	}
	wc := verbs.WC{WRID: w.wrid, QPNum: q.num, Op: w.op.Completion()}
	if w.op.Reads() {
		wc.ByteLen = w.length
	}
	q.sendCQ.push(cqe{wc: wc, qp: q, upto: q.done})
}

// response handles an answer of the peer.
func (q *QP) response(m *msg) {
	n := q.dev.net
	if q.dev.dead || q.flushed {
		return
	}
	n.note(traceRespond, q.num, m.idx<<8|uint64(m.status))
	if m.status != verbs.WCSuccess {
		if q.state == verbs.QPRTS {
			q.refused(m)
		}
		return
	}
	w := q.at(m.idx)
	status := verbs.WCSuccess
	if w.op.Reads() {
		// Also between ToError and the flush: the buffers are still ours.
		if !q.pd.scatter(q.sgl(m.idx), m.data) {
			status = verbs.WCLocProtErr
		}
	}
	if q.state != verbs.QPRTS {
		return
	}
	w.isDone, w.status, w.doneAt = true, status, n.now
	if w.op.Reads() {
		q.readsOut--
		if !q.txArmed {
			q.transmit() // also completes
			return
		}
	}
	q.complete()
}

// refused ends the QP because the peer refused request m.idx. The requests before it
// were executed. With AckLocal the request itself may have completed.
func (q *QP) refused(m *msg) {
	for q.done < m.idx {
		q.succeed(q.at(q.done))
	}
	status := verbs.WCWRFlushErr
	if q.done == m.idx {
		status = m.status
	}
	q.fail(status)
}
