package soft

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// fault says why and how a connection ends: what the peer is told, and which status
// the affected work requests get.
type fault struct {
	err   error
	term  bool // send a Terminate with code and quote
	code  iwarp.Code
	quote iwarp.Terminate

	sq    verbs.WCStatus // status of one send WR, 0: flush all
	named bool           // it is the one at pos; otherwise the oldest
	pos   uint64
	rq    verbs.WCStatus // status of the receive in progress, 0: flush
	quiet bool           // the owner wanted it: no event
	alert uint8          // of TLS, to be sent instead of a Terminate

	overflow bool // a completion queue did
}

var (
	errLocal        = errors.New("soft: a work request failed locally")
	errDisconnected = errors.New("soft: disconnected")
)

// refuse ends the connection because the peer broke a rule. f is the FPDU that broke
// it, or nil if no FPDU is quoted.
//
//go:noinline
func (q *qp) refuse(c iwarp.Code, f []byte) { q.refused(c, f, fault{}) }

func (q *qp) refused(c iwarp.Code, f []byte, ft fault) {
	ft.term, ft.code = true, c
	ft.err = fmt.Errorf("soft: peer broke the protocol: %w", c)
	if f != nil {
		ft.quote.Quote(f)
	}
	q.settle(&ft)
}

// settle ends the connection once the READs before the fault are answered, so that
// the work requests of the peer before the bad one succeed.
func (q *qp) settle(ft *fault) {
	if q.serve.empty() || q.sq.mid() {
		q.fail(ft)
		return
	}
	if q.fault != nil {
		return
	}
	q.ending(ft, terminating)
	q.dev.markDirty(q)
}

// ending keeps the fault that q ends by, when what it waits for in the state to is over. Nothing is read any more.
func (q *qp) ending(ft *fault, to state) {
	q.fault = ft
	q.become(to)
	q.listen()
}

// recvFault ends the connection because the receive in progress cannot take the
// message.
func (q *qp) recvFault(st verbs.WCStatus, c iwarp.Code, f []byte) {
	q.refused(c, f, fault{rq: st})
}

// readFault ends the connection because the response to the oldest READ is wrong.
func (q *qp) readFault(st verbs.WCStatus, c iwarp.Code, f []byte) {
	q.refused(c, f, fault{sq: st, named: true, pos: q.sq.waits.oldest().pos})
}

// sinkFault ends the connection because the local memory for a SEND or a READ
// response is not accessible.
func (q *qp) sinkFault() {
	if q.rx.h.Op == iwarp.OpReadResponse {
		q.readFault(verbs.WCLocProtErr, iwarp.TermLocal, nil)
	} else {
		q.recvFault(verbs.WCLocProtErr, iwarp.TermDDPLocal, nil)
	}
}

// frame returns the request as it came, less the part that was answered.
func (r *served) frame() []byte {
	f := make([]byte, iwarp.UntaggedLen+iwarp.AtomicReqLen)
	if r.atomic {
		iwarp.PutUntagged(f, iwarp.OpAtomicRequest, true, iwarp.AtomicReqLen, 0, iwarp.QNRead, r.msn, 0)
		r.areq.Put(f[iwarp.UntaggedLen:])
		return f
	}
	f = f[:iwarp.UntaggedLen+iwarp.ReadReqLen]
	iwarp.PutUntagged(f, iwarp.OpReadRequest, true, iwarp.ReadReqLen, 0, iwarp.QNRead, r.msn, 0)
	rest := r.ReadRequest
	rest.SinkTO += r.off
	rest.SrcTO += r.off
	rest.Size -= uint32(r.off)
	rest.Put(f[iwarp.UntaggedLen:])
	return f
}

// refuseServed ends the connection because the READ or atomic of the peer whose turn
// it is names memory that it may not use.
func (q *qp) refuseServed(r *served, c iwarp.Code) {
	ft := fault{term: true, code: c, err: fmt.Errorf("soft: peer broke the protocol: %w", c)}
	ft.quote.Quote(r.frame())
	q.fail(&ft)
}

// lost ends the QP because the TCP connection ended.
func (q *qp) lost(err error) {
	if err == nil {
		err = io.EOF
	}
	q.fail(&fault{err: fmt.Errorf("soft: connection lost: %w", err), sq: verbs.WCRetryExcErr})
}

// terminated handles a received Terminate.
func (q *qp) terminated(f []byte) {
	h := &q.rx.h
	q.dev.stats.TermRecvd++
	n := iwarp.LenField + h.ULPDU
	if len(f) < n {
		q.refuse(iwarp.TermFraming, nil)
		return
	}
	t, err := iwarp.ParseTerminate(f[iwarp.UntaggedLen:n], false)
	ft := &fault{err: fmt.Errorf("soft: terminated by the peer: %w", t.Code)}
	if err == nil {
		ft.pos, ft.named = q.culprit(&t)
		if ft.named || !t.HasDDP {
			ft.sq = requesterStatus(t.Code)
		}
		if ft.named && invalidRequest(t.Code, q.sq.at(ft.pos).op) {
			ft.sq = verbs.WCRemInvReqErr
		}
		if ft.named && q.known {
			// A peer of our kind does things in order: what came before is done.
			q.acknowledge(max(ft.pos, q.sq.acked))
		}
	}
	q.fail(ft)
}

// culprit returns the send request that a Terminate quotes.
func (q *qp) culprit(t *iwarp.Terminate) (uint64, bool) {
	if !t.HasDDP {
		return 0, false
	}
	s, h := &q.sq, &t.DDP
	for pos := s.done; pos != s.tail; pos++ {
		w := s.at(pos)
		if !w.begun {
			break
		}
		hit := false
		switch w.op {
		case verbs.OpSend, verbs.OpSendWithInv:
			hit = !h.Tagged && h.QN == iwarp.QNSend && h.MSN == w.msn
		case verbs.OpSendWithImm: // its Immediate Data has the MSN before
			hit = !h.Tagged && h.QN == iwarp.QNSend && (h.MSN == w.msn || h.MSN == w.msn-1)
		case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
			// siw has the size in place of the MSN, but the request is right.
			same := t.SIW && t.HasReq && t.Req.SrcSTag == w.rkey && t.Req.SrcTO == w.raddr && uint64(t.Req.Size) == w.length
			hit = !h.Tagged && h.QN == iwarp.QNRead && (h.MSN == w.msn || same)
		case verbs.OpRDMAWrite, verbs.OpRDMAWriteWithImm:
			hit = h.Tagged && h.Op == iwarp.OpWrite && h.STag == w.rkey && h.TO-w.raddr < max(w.length, 1) ||
				w.made && w.op == verbs.OpRDMAWriteWithImm && !h.Tagged && h.QN == iwarp.QNSend && h.MSN == w.msn
		}
		if hit {
			return pos, true
		}
	}
	return 0, false
}

// invalidRequest reports whether c says that the peer cannot do op at all, whatever
// memory it names.
func invalidRequest(c iwarp.Code, op verbs.Opcode) bool {
	switch c {
	case iwarp.TermStream:
		return op.Atomic() // misaligned
	case iwarp.TermOpcode: // not enabled there
		return op.Reads() || op == verbs.OpRDMAWrite || op == verbs.OpRDMAWriteWithImm
	}
	return false
}

// requesterStatus returns the status of the work request that caused a Terminate.
func requesterStatus(c iwarp.Code) verbs.WCStatus {
	switch c {
	case iwarp.TermNoBuffer:
		return verbs.WCRNRRetryExcErr
	case iwarp.TermTooLong, iwarp.TermCantInv, iwarp.TermInvalidate:
		return verbs.WCRemInvReqErr
	case iwarp.TermCRC, iwarp.TermFraming, iwarp.TermTCPLost:
		return verbs.WCRetryExcErr
	case iwarp.TermQN, iwarp.TermMSN, iwarp.TermMO, iwarp.TermRDMAPVersion, iwarp.TermOpcode,
		iwarp.TermTaggedVersion, iwarp.TermUntaggedVersion:
		return verbs.WCBadRespErr
	}
	switch {
	case c.Layer() == iwarp.LayerRDMAP && c.Type() == iwarp.TypeProtection,
		c.Layer() == iwarp.LayerDDP && c.Type() == iwarp.TypeTagged:
		return verbs.WCRemAccessErr
	}
	return verbs.WCRemOpErr
}

// fail moves the QP to ERR, when no thread has anything of it. Nothing else does. The first fault counts.
func (q *qp) fail(ft *fault) {
	if q.state >= failed {
		return
	}
	if first := q.fault; first != nil {
		first.quiet, first.overflow = first.quiet || ft.quiet, first.overflow || ft.overflow
		ft = first
	}
	if q.elsewhere() {
		if q.state != releasing {
			q.ending(ft, releasing)
			q.enough()
			_ = q.dev.watch(unix.EPOLL_CTL_DEL, q.fd, q.slot, 0) // it would report the end of the connection again and again
		}
		return
	}
	established := q.state.connected() || q.state == releasing
	q.become(failed)
	q.fault = nil
	if t, ok := ft.asyncOf(); ok && established {
		q.dev.raise(verbs.AsyncEvent{Type: t, QP: q, Err: ft.err})
	}
	if established && !ft.quiet {
		q.dev.stats.Disconnects++
		q.dev.events.push(verbs.CMEvent{Type: verbs.CMDisconnected, QP: q, Local: q.local, Remote: q.remote, Err: ft.err})
	}
	var last []byte
	if ft.term && established {
		q.dev.stats.TermSent++
		last = q.farewell(ft)
	}
	q.hangUp(last, ft.alert)

	if !ft.named {
		ft.pos = q.sq.tail
	}
	q.completeDone(ft.pos)
	if !ft.named {
		ft.pos = q.sq.done
	}
	q.flushSends(ft.pos, ft.sq)
	if x := &q.rx; x.recv != nil {
		w := x.recv
		x.recv = nil
		st := ft.rq
		if st == 0 {
			st = verbs.WCWRFlushErr
		}
		q.completeRecv(w, verbs.WC{Status: st}, false)
	}
	q.flushRecvs()
	if q.srq != nil {
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncQPLastWQE, QP: q})
	}
	q.dev.updateWake(false)
}

// farewell returns all pending output, completed, and the Terminate.
func (q *qp) farewell(ft *fault) []byte {
	q.fill()
	b := q.out.private()
	t := ft.quote
	t.Code = ft.code
	n := len(b)
	size := iwarp.FPDUSize(iwarp.UntaggedLen - iwarp.LenField + t.Len())
	b = append(b, make([]byte, size)...)
	f := b[n:]
	iwarp.PutUntagged(f, iwarp.OpTerminate, true, t.Len(), 0, iwarp.QNTerminate, 1, 0)
	t.Put(f[iwarp.UntaggedLen:])
	if q.markers {
		iwarp.Seal(f, false)
		m := make([]byte, q.marker.MaxSize(size))
		b = append(b[:n], m[:q.marker.Put(m, f, q.crc)]...)
	} else {
		iwarp.Seal(f, q.crc)
	}
	if t := q.tap(); t != nil {
		q.saw(t, true, b)
	}
	if q.tls != nil {
		b = b[q.tls.batch:] // is sealed
	}
	return b
}

// hangUp gives the connection up. A goroutine gets the descriptor, writes last, with
// TLS an alert behind it, and closes the connection in order. Afterwards nothing of
// the QP touches registered memory.
func (q *qp) hangUp(last []byte, alert uint8) {
	if q.dial != nil {
		q.dial.cancel()
		q.dial = nil
	}
	if q.fd >= 0 {
		_ = q.dev.watch(unix.EPOLL_CTL_DEL, q.fd, q.slot, 0)
		if q.tls != nil {
			last = q.tls.lastSealed(last, alert)
			q.tls.release(q.dev)
		}
		q.dev.ctl.linger(q.fd, last)
		q.fd = -1
	}
	q.giveOut()
	q.dropStage()
	q.rx.placing, q.rx.aside = false, nil
	q.park = parking{}
	q.timers = [timerKinds]int64{}
	q.intake, q.held, q.meter = reading, false, nil
	if q.srq != nil {
		q.srq.waiting.Del(&q.onSRQ)
	}
	q.starving = false
}

// flushSends completes everything outstanding as flushed, except the request at pos
// if st is not 0: that one gets st.
func (q *qp) flushSends(pos uint64, st verbs.WCStatus) {
	s := &q.sq
	for ; s.done != s.tail; s.done++ {
		w := s.at(s.done)
		if s.done == pos && st != 0 {
			q.completeSend(s.done, w, st)
		} else {
			q.completeSend(s.done, w, verbs.WCWRFlushErr)
		}
	}
	s.gen, s.acked = s.tail, s.tail
	s.reads, s.fences, s.waits.head, s.room = 0, 0, s.waits.tail, roomUnknown
}

func (q *qp) flushRecvs() {
	for w := q.rq.take(); w != nil; w = q.rq.take() {
		q.completeRecv(w, verbs.WC{Status: verbs.WCWRFlushErr}, false)
	}
}

// ToError implements verbs.QP. What was written is still delivered; the rest
// is dropped, in the middle of a frame if need be.
func (q *qp) ToError() { q.fail(&fault{quiet: true}) }

// Disconnect implements verbs.QP. Sends posted after it are flushed.
func (q *qp) Disconnect() {
	if !q.state.connected() {
		q.ToError()
		return
	}
	q.closeAt = q.sq.tail
	q.dev.markDirty(q)
}

// cut ends the connection without completions. It waits for q's thread.
func (q *qp) cut() {
	q.held = true // until hangUp: else its thread would go on
	q.enough()
	q.await()
	q.hangUp(nil, 0)
	if w := q.rx.recv; w != nil && q.srq != nil {
		q.srq.put(w)
	}
	q.rx.recv = nil
}
