package sim

import "github.com/rdsd/rdsd/verbs"

// fail ends a QP in RTS because of the network or the peer. The first outstanding
// request gets status, the others are flushed, and the owner gets an event.
func (q *QP) fail(status verbs.WCStatus) {
	q.state = verbs.QPErr
	q.flush(status)
	if q.fatal {
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncQPFatal, QP: q})
	}
	q.dev.event(verbs.CMEvent{Type: verbs.CMDisconnected, QP: q})
}

// flush completes everything outstanding. Afterwards the QP touches no buffer.
func (q *QP) flush(first verbs.WCStatus) {
	q.flushed = true
	if q.srq != nil {
		q.srq.forget(q)
	}
	q.flushSends(first)
	q.flushRecvs()
	if q.srq != nil {
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncQPLastWQE, QP: q})
	}
}

func (q *QP) flushSends(first verbs.WCStatus) {
	for q.done < q.tail {
		w := q.at(q.done)
		q.done++
		q.dev.net.bufs.put(w.inline)
		w.inline = nil
		q.sendCQ.push(cqe{wc: verbs.WC{WRID: w.wrid, Status: first, QPNum: q.num}, qp: q, upto: q.done})
		first = verbs.WCWRFlushErr
	}
	q.tx = q.tail
}

func (q *QP) flushRecvs() {
	for q.recvq.n > 0 {
		wrid, _ := q.recvq.take()
		q.completeRecv(verbs.WC{WRID: wrid, Status: verbs.WCWRFlushErr, QPNum: q.num, Op: verbs.WCRecv}, false)
	}
}

// learnLater makes q notice later that its connection has ended.
func (q *QP) learnLater(late bool) {
	if q == nil || q.state != verbs.QPRTS || q.dev.dead {
		return
	}
	n := q.dev.net
	r := n.Timing.Learn
	if late {
		r = n.Timing.Late
	}
	life := q.life
	learn := func() {
		if q.life == life && q.state == verbs.QPRTS && !q.dev.dead {
			q.fail(verbs.WCRetryExcErr)
			q.tellPeer(false)
		}
	}
	n.after(n.rand.learn.between(r), func() {
		if q.peer == nil {
			learn()
			return
		}
		n.cross(q.peer.dev.addr, q.dev.addr, learn)
	})
}

// tellPeer makes the peer notice that q has ended. If nothing gets through any more,
// the peer notices the break instead.
func (q *QP) tellPeer(late bool) {
	if !q.out.isCut {
		q.peer.learnLater(late)
	}
}

// cut drops everything in flight from q, and ends every wait of q.
func (q *QP) cut() {
	if q.srq != nil {
		q.srq.forget(q)
	}
	q.out.cut()
	q.resp.cut()
}

// ToError implements verbs.QP. What was transmitted may still arrive at the
// peer until it notices.
func (q *QP) ToError() {
	if q.dev.dead || q.destroyed || q.state == verbs.QPErr {
		return
	}
	q.state = verbs.QPErr
	q.setup.giveUp(q)
	q.tellPeer(false)
	n := q.dev.net
	life := q.life
	n.after(n.rand.flush.between(n.Timing.Flush), func() {
		if q.life == life && !q.dev.dead && !q.destroyed {
			q.flush(verbs.WCWRFlushErr)
		}
	})
}

// Disconnect implements verbs.QP.
func (q *QP) Disconnect() {
	if q.dev.dead || q.destroyed || q.closing {
		return
	}
	if q.state != verbs.QPRTS {
		q.ToError()
		return
	}
	q.closing, q.limit = true, q.tail
	q.armTransmit()
}

// Destroy implements verbs.QP.
func (q *QP) Destroy() error {
	if q.dev.dead {
		return nil
	}
	if q.destroyed {
		return q.dev.invalid("Destroy", "queue pair destroyed")
	}
	q.end()
	q.dev.forgetAsync(func(e *verbs.AsyncEvent) bool { return e.QP == q })
	q.pd.uses--
	q.sendCQ.users--
	q.recvCQ.users--
	if q.srq != nil {
		q.srq.users--
		q.srq.forget(q)
	}
	for i, o := range q.dev.qps {
		if o == q {
			q.dev.qps = append(q.dev.qps[:i], q.dev.qps[i+1:]...)
			break
		}
	}
	q.tellPeer(false)
	return nil
}

// end stops the queue pair without completions.
func (q *QP) end() {
	q.state, q.flushed, q.destroyed = verbs.QPErr, true, true
	q.setup.giveUp(q)
}

// abandon is end for a device that dies. The peer of a crashed host may notice late.
func (q *QP) abandon(crash bool) {
	q.end()
	q.tellPeer(crash && q.dev.net.rand.halfOpen.below(4) == 0)
}
