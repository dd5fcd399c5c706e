package sim

import (
	"fmt"

	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// QP implements verbs.QP.
//
// Send requests are numbered from 0. They are posted at tail, transmitted at
// tx, completed at done and give up their slot at released:
// released <= done <= tx <= tail.
type QP struct {
	dev            *Device
	pd             *PD
	num            uint32
	state          verbs.QPState
	attr           verbs.QPInitAttr
	sendCQ, recvCQ *CQ
	srq            *SRQ

	sq                       []sqe // ring, power of two, that grows with what is posted
	sges                     []verbs.SGE
	released, done, tx, tail uint64
	readsOut                 int    // READs and atomics in flight
	closing                  bool   // Disconnect was called
	limit                    uint64 // ... when tail was here

	recvq recvQueue

	out, resp pipe // requests to the peer; responses to the peer's requests
	peer      *QP
	setup     *attempt // while connecting, either side

	txArmed, doneArmed, flushed, destroyed bool

	asked          verbs.QPCap // before any negotiation
	life           int         // counts RESETs: events of an earlier life mean nothing
	sqd, sqDrained bool
	passive        bool   // accepted, and nothing has arrived yet
	fatal          bool   // a completion queue overflowed
	rnrIdx         uint64 // request of the peer that waits for a receive, plus one
	stats          verbs.QPStats

	fireTransmit, fireDone func()
}

var _ verbs.QP = (*QP)(nil)

const destroyed = "queue pair destroyed"

// A full queue is no exception: its errors cost no allocation.
var (
	errSendFull = fmt.Errorf("sim: PostSend: send queue full: %w", unix.ENOMEM)
	errRecvFull = fmt.Errorf("sim: PostRecv: receive queue full: %w", unix.ENOMEM)
)

// sqe is a posted send request.
type sqe struct {
	wrid   uint64
	raddr  uint64
	doneAt int64
	inline []byte
	atomic *verbs.AtomicArgs
	bind   *bindArgs
	rkey   uint32
	imm    uint32
	length uint32
	op     verbs.Opcode
	flags  verbs.SendFlags
	nsge   uint8
	isDone bool
	status verbs.WCStatus // with isDone
}

// CreateQP implements verbs.PD.
func (pd *PD) CreateQP(attr verbs.QPInitAttr) (verbs.QP, error) {
	if err := pd.usable("CreateQP"); err != nil {
		return nil, err
	}
	d := pd.dev
	scq, ok1 := attr.SendCQ.(*CQ)
	rcq, ok2 := attr.RecvCQ.(*CQ)
	if !ok1 || !ok2 || scq.dev != d || rcq.dev != d || scq.gone || rcq.gone {
		return nil, d.invalid("CreateQP", "no live completion queues of this device")
	}
	if min(attr.Cap.MaxSendWR, attr.Cap.MaxSendSGE, attr.Cap.MaxRecvWR, attr.Cap.MaxRecvSGE) < 0 {
		return nil, d.invalid("CreateQP", fmt.Sprintf("negative capacities %+v", attr.Cap))
	}
	q := &QP{dev: d, pd: pd, state: verbs.QPInit, sendCQ: scq, recvCQ: rcq}
	if attr.SRQ != nil {
		srq, ok := attr.SRQ.(*SRQ)
		if !ok || srq.pd.dev != d || srq.gone {
			return nil, d.invalid("CreateQP", "no live shared receive queue of this device")
		}
		q.srq = srq
		attr.Cap.MaxRecvWR, attr.Cap.MaxRecvSGE = 0, 0
	}
	c, a := &attr.Cap, &d.attr
	c.MaxSendWR, c.MaxSendSGE = max(c.MaxSendWR, 1), max(c.MaxSendSGE, 1)
	if c.MaxSendWR > a.MaxSendWR || c.MaxRecvWR > a.MaxRecvWR || c.MaxSendSGE > a.MaxSGE || c.MaxRecvSGE > a.MaxSGE ||
		c.MaxInline > a.MaxInline || c.ReadDepth > a.MaxReadDepth || c.MaxInline < 0 || c.ReadDepth < 0 {
		return nil, d.invalid("CreateQP", fmt.Sprintf("capacities %+v beyond the device's", *c))
	}
	if !attr.RNRRetry.Valid() || !attr.MinRNRTimer.Valid() || attr.Ack > verbs.AckLocal || attr.CRC > verbs.CRCOff || attr.Access&^qpRights != 0 {
		return nil, d.invalid("CreateQP", fmt.Sprintf("RNR retry %d, timer %d, acknowledgement %d, CRC %d, access %#x",
			attr.RNRRetry, attr.MinRNRTimer, attr.Ack, attr.CRC, uint64(attr.Access)))
	}
	c.Caps = a.Caps
	if a.Caps&verbs.CapPlacedCQ != 0 {
		attr.Ack = verbs.AckRemote
	}
	q.attr, q.asked = attr, *c
	d.net.qps++
	q.num = d.net.qps
	q.sq, q.sges = make([]sqe, sqBegin), make([]verbs.SGE, sqBegin*c.MaxSendSGE)
	q.recvq = newRecvQueue(c.MaxRecvWR, c.MaxRecvSGE)
	q.wire()
	pd.uses++
	scq.users++
	rcq.users++
	if q.srq != nil {
		q.srq.users++
	}
	d.qps = append(d.qps, q)
	return q, nil
}

// Num implements verbs.QP; numbers are unique in a network.
func (q *QP) Num() uint32 { return q.num }

// wire makes the pipes of one connection.
func (q *QP) wire() {
	q.out, q.resp = pipe{}, pipe{}
	q.out.init(q, func(m *msg) bool { return q.peer.request(m) })
	q.resp.init(q, func(m *msg) bool { q.peer.response(m); return true })
	life := q.life
	q.fireTransmit = func() {
		if q.life == life {
			q.transmit()
		}
	}
	q.fireDone = func() {
		if q.life == life {
			q.doneArmed = false
			q.complete()
		}
	}
}

// State implements verbs.QP. SQD is a kind of RTS here.
func (q *QP) State() verbs.QPState {
	if q.state == verbs.QPRTS && q.sqd {
		return verbs.QPSQD
	}
	return q.state
}

// Cap implements verbs.QP.
func (q *QP) Cap() verbs.QPCap { return q.attr.Cap }

// Context implements verbs.QP.
func (q *QP) Context() any { return q.attr.Context }

// Peer returns the queue pair at the other end, nil before the connection.
func (q *QP) Peer() *QP { return q.peer }

// Device returns the device of the queue pair.
func (q *QP) Device() *Device { return q.dev }

func (q *QP) at(idx uint64) *sqe { return &q.sq[idx&uint64(len(q.sq)-1)] }

func (q *QP) sgl(idx uint64) []verbs.SGE {
	slot := int(idx & uint64(len(q.sq)-1))
	return q.sges[slot*q.attr.Cap.MaxSendSGE:][:q.sq[slot].nsge]
}

// PostSend implements verbs.QP.
func (q *QP) PostSend(wr []verbs.SendWR) (int, error) {
	if q.dev.dead {
		return 0, q.dev.deadError("PostSend")
	}
	if q.destroyed {
		return 0, q.dev.invalid("PostSend", destroyed)
	}
	if q.state == verbs.QPReset || q.state == verbs.QPInit && q.setup == nil {
		return 0, q.dev.invalid("PostSend", fmt.Sprintf("queue pair in %v, before Connect or Accept", q.state))
	}
	n, err := q.queueAll(wr)
	switch {
	case n == 0:
	case q.state == verbs.QPRTS:
		q.armTransmit()
	case q.state == verbs.QPErr && q.flushed:
		q.flushSends(verbs.WCWRFlushErr)
	}
	return n, err
}

// queueAll queues requests up to the first invalid one.
func (q *QP) queueAll(wr []verbs.SendWR) (int, error) {
	n := q.dev.net
	for i := range wr {
		length, err := q.check(&wr[i])
		if err != nil {
			return i, err
		}
		var bind *bindArgs
		if wr[i].Op == verbs.OpBindMW && q.tail-q.released < uint64(q.attr.Cap.MaxSendWR) {
			var ok bool
			if bind, ok = q.bindPosted(wr[i].Bind); !ok {
				return i, q.dev.invalid("PostSend", "BIND_MW with arguments that cannot be right")
			}
		}
		if q.tail-q.released == uint64(q.attr.Cap.MaxSendWR) || n.rand.postFail.chance(n.Faults.PostFail) {
			return i, errSendFull
		}
		q.queue(&wr[i], length)
		q.at(q.tail - 1).bind = bind
	}
	return len(wr), nil
}

// sqBegin is the length of the ring of a new send queue.
const sqBegin = 8

// grow doubles the ring.
func (q *QP) grow() {
	old := *q
	n, each := 2*len(q.sq), q.attr.Cap.MaxSendSGE
	q.sq, q.sges = make([]sqe, n), make([]verbs.SGE, n*each)
	for i := q.released; i < q.tail; i++ {
		*q.at(i) = *old.at(i)
		copy(q.sges[int(i&uint64(n-1))*each:], old.sgl(i))
	}
}

func (q *QP) queue(w *verbs.SendWR, length uint32) {
	if q.tail-q.released == uint64(len(q.sq)) {
		q.grow()
	}
	e := q.at(q.tail)
	flags := w.Flags
	if q.attr.SQSigAll {
		flags |= verbs.SendSignaled
	}
	*e = sqe{wrid: w.WRID, op: w.Op, flags: flags, imm: w.Imm, rkey: w.RKey, raddr: w.RemoteAddr, length: length}
	if w.Op == verbs.OpAtomicCmpAndSwp || w.Op == verbs.OpAtomicFetchAdd {
		a := w.Atomic
		e.atomic = &a
	}
	e.nsge = uint8(len(w.SGL))
	slot := int(q.tail & uint64(len(q.sq)-1))
	copy(q.sges[slot*q.attr.Cap.MaxSendSGE:], w.SGL)
	q.tail++
	if w.Flags&verbs.SendInline != 0 && q.state != verbs.QPErr {
		e.inline = q.dev.net.bufs.get(int(length))
		if w.Inline != nil {
			copy(e.inline, w.Inline)
		} else {
			q.pd.gather(e.inline, w.SGL) // check found it good
		}
	}
}

// check does the immediate checks of a send request and returns its length.
func (q *QP) check(w *verbs.SendWR) (uint32, error) {
	c, caps := &q.attr.Cap, q.dev.attr.Caps
	maxSGE := c.MaxSendSGE
	if w.Op == verbs.OpRDMARead {
		maxSGE = min(maxSGE, q.dev.attr.MaxReadSGE)
	}
	need, known := needs(w)
	switch {
	case !known:
		return 0, q.dev.invalid("PostSend", fmt.Sprintf("%v is unknown", w.Op))
	case caps&need != need:
		return 0, q.dev.invalid("PostSend", fmt.Sprintf("%v: the device has it not", w.Op))
	case w.Op.Reads() && c.ReadDepth == 0:
		return 0, q.dev.invalid("PostSend", fmt.Sprintf("%v with read depth 0", w.Op))
	case w.Op.Reads() && w.Flags&verbs.SendInline != 0:
		return 0, q.dev.invalid("PostSend", fmt.Sprintf("inline %v", w.Op))
	case w.Op.Atomic() && (len(w.SGL) != 1 || w.SGL[0].Length != 8):
		return 0, q.dev.invalid("PostSend", fmt.Sprintf("%v without one SGE of 8 bytes", w.Op))
	case (w.Op == verbs.OpLocalInv || w.Op == verbs.OpBindMW) && len(w.SGL)+len(w.Inline) > 0:
		return 0, q.dev.invalid("PostSend", fmt.Sprintf("%v with an SGL or inline data", w.Op))
	case len(w.SGL) > maxSGE:
		return 0, q.dev.invalid("PostSend", fmt.Sprintf("%d SGEs, at most %d", len(w.SGL), maxSGE))
	case hasEmpty(w.SGL):
		return 0, q.dev.invalid("PostSend", "SGE of length 0")
	case w.Flags&^sendFlags != 0:
		return 0, q.dev.invalid("PostSend", fmt.Sprintf("unknown send flags %#x", uint8(w.Flags&^sendFlags)))
	case w.Inline != nil && (w.Flags&verbs.SendInline == 0 || len(w.SGL) > 0):
		return 0, q.dev.invalid("PostSend", "inline data without SendInline, or with an SGL")
	}
	n := uint64(len(w.Inline))
	for i := range w.SGL {
		n += uint64(w.SGL[i].Length)
	}
	if w.Flags&verbs.SendInline != 0 {
		if n > uint64(c.MaxInline) {
			return 0, q.dev.invalid("PostSend", fmt.Sprintf("%d bytes inline, at most %d", n, c.MaxInline))
		}
		for i := range w.SGL {
			if q.pd.local(&w.SGL[i], 0) == nil {
				return 0, q.dev.invalid("PostSend", "inline data of an SGL needs a valid key and bounds")
			}
		}
	}
	return uint32(min(n, 1<<32-1)), nil
}

// needs returns the capabilities that w needs. It returns false if the opcode is
// unknown.
func needs(w *verbs.SendWR) (verbs.Caps, bool) {
	switch w.Op {
	case verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead:
		return 0, true
	case verbs.OpSendWithInv, verbs.OpLocalInv:
		return verbs.CapInvalidate, true
	case verbs.OpBindMW:
		return verbs.CapMW, true
	case verbs.OpRDMAWriteWithImm, verbs.OpSendWithImm:
		return verbs.CapImm, true
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		if w.Atomic.Masked {
			return verbs.CapAtomics | verbs.CapMaskedAtomic, true
		}
		return verbs.CapAtomics, true
	}
	return 0, false
}

const sendFlags = verbs.SendFence | verbs.SendSignaled | verbs.SendSolicited | verbs.SendInline

// PostRecv implements verbs.QP.
func (q *QP) PostRecv(wr []verbs.RecvWR) (int, error) {
	if q.dev.dead {
		return 0, q.dev.deadError("PostRecv")
	}
	if q.destroyed {
		return 0, q.dev.invalid("PostRecv", destroyed)
	}
	if q.srq != nil {
		return 0, q.dev.invalid("PostRecv", "the queue pair has a shared receive queue")
	}
	if q.state == verbs.QPReset {
		return 0, q.dev.invalid("PostRecv", "queue pair in RESET")
	}
	n, err := q.recvq.post(wr)
	switch {
	case q.state == verbs.QPErr && q.flushed:
		q.flushRecvs()
	case q.peer != nil:
		q.peer.out.resume()
	}
	return n, err
}
