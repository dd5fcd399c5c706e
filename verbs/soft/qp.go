package soft

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// qp implements verbs.QP.
type qp struct {
	dev  *Device
	pd   *pd
	attr verbs.QPInitAttr
	cap  verbs.QPCap
	num  uint32
	slot int32

	state   state
	intake  intake
	drain   drain
	closeAt uint64 // Disconnect was called: what is posted before it still goes; else never

	// The connection.
	fd            int // -1: none
	events        uint32
	heard         bool // the peer has sent something
	nudges        int
	crc           bool
	markers       bool // the peer wants them
	marker        iwarp.Marker
	maxPayload    uint64         // of one FPDU
	known         bool           // the peer is of our kind:
	peer          iwarp.Features // what it can do
	dial          *dialing
	tls           *secure // nil: plain
	local, remote netip.AddrPort

	scq, rcq *cq
	srq      *srq
	rq       recvQueue
	sq       sendQueue
	out      output
	rx       input
	park     parking
	serve    responder
	fault    *fault // why it is terminating

	mrs      [2]*mr // the last regions looked up: local, remote
	timers   [timerKinds]int64
	on       onLists
	onSRQ    place // among those that wait for its receives
	busy     bool  // since the device looked last for what is not used
	starving bool  // the head of park waits for a receive
	held     bool  // the owner wants nothing read
	late     late
	meter    func(n int)
	round    uint32 // of spill, in which it was counted
	stats    verbs.QPStats
}

// place is where a queue pair is on a list.
type place = lists.Link[qp]

// onLists is where a queue pair is on the lists of its device that have the same names.
type onLists struct{ dirty, ready, timed, grown, writes place }

var _ verbs.QP = (*qp)(nil)

// CreateQP implements verbs.PD. EINVAL: foreign or missing queues, capacities
// over the device's limits.
func (p *pd) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	d := p.dev
	scq, ok1 := a.SendCQ.(*cq)
	rcq, ok2 := a.RecvCQ.(*cq)
	if !ok1 || !ok2 || scq.dev != d || rcq.dev != d || scq.gone || rcq.gone {
		return nil, fmt.Errorf("soft: queue pair needs two completion queues of this device: %w", unix.EINVAL)
	}
	var s *srq
	if a.SRQ != nil {
		if s, ok1 = a.SRQ.(*srq); !ok1 || s.dev != d || s.gone {
			return nil, fmt.Errorf("soft: shared receive queue is not of this device: %w", unix.EINVAL)
		}
	}
	switch {
	case !a.RNRRetry.Valid() || !a.MinRNRTimer.Valid():
		return nil, fmt.Errorf("soft: RNR retry %d of 3 bits, timer %d of 5 bits: %w", a.RNRRetry, a.MinRNRTimer, unix.EINVAL)
	case a.Ack > verbs.AckLocal || a.CRC > verbs.CRCOff:
		return nil, fmt.Errorf("soft: unknown acknowledgement mode %d or CRC mode %d: %w", a.Ack, a.CRC, unix.EINVAL)
	case a.Access&^qpRights != 0:
		return nil, fmt.Errorf("soft: access %#x, of which a queue pair has the remote rights only: %w", uint64(a.Access), unix.EINVAL)
	}
	c := a.Cap
	if min(c.MaxSendWR, c.MaxSendSGE, c.MaxRecvWR, c.MaxRecvSGE, c.MaxInline, c.ReadDepth) < 0 {
		return nil, fmt.Errorf("soft: negative queue pair capacities %+v: %w", c, unix.EINVAL)
	}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	if s != nil {
		c.MaxRecvWR = 0
	}
	at := d.Attr()
	if max(c.MaxSendWR, c.MaxRecvWR) > maxWR || max(c.MaxSendSGE, c.MaxRecvSGE) > maxSGE ||
		c.MaxInline > maxInline || c.ReadDepth > at.MaxReadDepth {
		return nil, fmt.Errorf("soft: queue pair capacities %+v exceed the device's limits: %w", c, unix.EINVAL)
	}
	d.qpn = (d.qpn + 1) & 0xffffff
	c.Caps = at.Caps
	a.Cap = c
	q := &qp{dev: d, pd: p, attr: a, num: d.qpn, scq: scq, rcq: rcq, srq: s}
	q.init()
	q.become(initial)
	if s != nil {
		s.users++
	}
	p.users++
	scq.users++
	rcq.users++
	if n := len(d.free); n > 0 {
		q.slot = d.free[n-1]
		d.free = d.free[:n-1]
		d.qps[q.slot] = q
	} else {
		q.slot = int32(len(d.qps))
		d.qps = append(d.qps, q)
	}
	return q, nil
}

// Destroy implements verbs.QP.
func (q *qp) Destroy() error {
	if q.state == destroyed {
		return errDestroyed
	}
	q.cut()
	q.become(destroyed)
	d := q.dev
	if !d.closed {
		d.events.forget(q)
		d.async.forget(func(e *verbs.AsyncEvent) bool { return e.QP == q })
		d.updateWake(d.dirty.N > 0)
	}
	d.qps[q.slot] = nil
	d.free = append(d.free, q.slot)
	q.pd.users--
	q.scq.users--
	q.rcq.users--
	if q.srq != nil {
		q.srq.users--
	}
	return nil
}

// init gives q its queues as they are before a connection.
func (q *qp) init() {
	c := q.attr.Cap
	q.cap = c
	q.fd, q.closeAt = -1, never
	q.maxPayload = iwarp.MaxPayload
	q.crc = q.attr.CRC == verbs.CRCOn && q.dev.opt.CRC == verbs.CRCOn
	q.sq.init(c)
	if q.attr.SQSigAll {
		q.sq.always = verbs.SendSignaled
	}
	if q.srq == nil {
		n := ceilPow2(max(c.MaxRecvWR, 1))
		q.rq = recvQueue{w: newRecvWRs(n, c.MaxRecvSGE), cap: uint64(c.MaxRecvWR)}
	}
}

func (q *qp) Num() uint32 { return q.num }

// State implements verbs.QP. SQD is a kind of RTS here.
func (q *qp) State() verbs.QPState {
	if q.state.connected() && q.drain != flowing {
		return verbs.QPSQD
	}
	return asVerbs[q.state]
}

// Stats implements verbs.QP.
func (q *qp) Stats() verbs.QPStats { return q.stats }

// Modify implements verbs.QP.
func (q *qp) Modify(to verbs.QPState) error {
	from := q.State()
	switch {
	case q.state == destroyed:
		return errDestroyed
	case to == verbs.QPErr:
		q.ToError()
	case to == verbs.QPReset:
		q.reset()
	case to == from && (from == verbs.QPInit || from == verbs.QPRTS || from == verbs.QPSQD):
	case from == verbs.QPReset && to == verbs.QPInit:
		q.become(initial)
	case from == verbs.QPRTS && to == verbs.QPSQD:
		q.drain = draining
		q.dev.markDirty(q)
		q.dev.updateWake(true)
	case from == verbs.QPSQD && to == verbs.QPRTS:
		q.drain = flowing
		q.generate()
		q.dev.markDirty(q)
	default:
		return fmt.Errorf("soft: queue pair %d cannot go from state %v to %v: %w", q.num, from, to, unix.EINVAL)
	}
	return nil
}

// reset makes q as new, except for its completions that are not polled.
func (q *qp) reset() {
	q.cut()
	for _, c := range [...]*cq{q.scq, q.rcq} {
		c.disown(q)
	}
	q.dev.events.forget(q)
	q.dev.async.forget(func(e *verbs.AsyncEvent) bool { return e.QP == q })
	q.dev.updateWake(q.dev.dirty.N > 0)
	*q = qp{dev: q.dev, pd: q.pd, attr: q.attr, num: q.num, slot: q.slot, scq: q.scq, rcq: q.rcq, srq: q.srq,
		on: q.on, stats: q.stats}
	q.init()
}

func (q *qp) Cap() verbs.QPCap { return q.cap }
func (q *qp) Context() any     { return q.attr.Context }

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wr []verbs.RecvWR) (int, error) {
	if q.srq != nil {
		return 0, errOnSRQ
	}
	switch q.state {
	case destroyed:
		return 0, errDestroyed
	case reset:
		return 0, fmt.Errorf("soft: PostRecv in RESET: %w", unix.EINVAL)
	}
	n, err := q.rq.post(wr)
	if n == 0 {
		return n, err
	}
	if q.state == failed {
		q.flushRecvs()
	} else if q.starving {
		q.dev.markReady(q)
	}
	return n, err
}

var errDestroyed = fmt.Errorf("soft: queue pair is destroyed: %w", unix.EINVAL)

// release gives queue slots back when a completion is polled.
func (q *qp) release(pos uint64, recv bool) {
	if recv {
		q.rq.free++
	} else {
		q.sq.free = pos + 1
	}
}

// completeSend adds a completion of the send queue.
func (q *qp) completeSend(pos uint64, s *sendWR, st verbs.WCStatus) {
	wc := verbs.WC{WRID: s.wrid, Status: st, QPNum: q.num}
	if st == verbs.WCSuccess {
		wc.Op = s.op.Completion()
		if s.op.Reads() {
			wc.ByteLen = uint32(s.length)
		}
	}
	if e := q.scq.next(); e != nil {
		e.wc, e.qp, e.pos, e.recv = wc, q, pos, false
		q.scq.notify(st != verbs.WCSuccess)
	}
}

// takeRecv takes a receive, or returns nil if there is none.
func (q *qp) takeRecv() *recvWR {
	if q.srq != nil {
		return q.srq.take()
	}
	return q.rq.take()
}

// recvPD returns the protection domain of the memory of receives.
func (q *qp) recvPD() *pd {
	if q.srq != nil {
		return q.srq.pd
	}
	return q.pd
}

// completeRecv adds a completion of the receive queue for w and frees w. wc has the
// fields that are special for it.
func (q *qp) completeRecv(w *recvWR, wc verbs.WC, solicited bool) {
	wc.WRID, wc.QPNum = w.wrid, q.num
	if wc.Op == 0 {
		wc.Op = verbs.WCRecv
	}
	if wc.Status == verbs.WCSuccess {
		q.stats.Received++
	}
	if e := q.rcq.next(); e != nil {
		e.wc, e.qp, e.recv = wc, q, true
		if q.srq != nil {
			e.qp = nil
		}
		q.rcq.notify(solicited || wc.Status != verbs.WCSuccess)
	}
	if q.srq != nil {
		q.srq.put(w)
	}
}

func (q *qp) stall() {
	q.intake = full
	q.dev.stats.RNRStalls++
	q.listen()
}

const unixIn = unix.EPOLLIN | unix.EPOLLRDHUP

// listen has q wait for input exactly while it reads. While a thread reads for it, the end of the connection is reported
// once; when the thread has let go, again.
func (q *qp) listen() {
	ev := q.events &^ (unixIn | unix.EPOLLET)
	takes := q.intake < full && q.state < terminating
	switch {
	case q.rx.job != nil:
		ev |= unix.EPOLLET
	case takes && !q.held:
		ev |= unixIn
	}
	q.interest(ev)
}

// interest sets the epoll events that q waits for.
func (q *qp) interest(ev uint32) {
	if ev != q.events && q.fd >= 0 {
		q.events = ev
		// It cannot fail for a descriptor that is registered.
		_ = q.dev.watch(unix.EPOLL_CTL_MOD, q.fd, q.slot, ev)
	}
}
