package soft

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

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

	state     verbs.QPState
	linked    bool // Connect or Accept was called: sends may be queued
	closing   bool // Disconnect was called: what is posted before closeAt still goes
	closeAt   uint64
	destroyed bool

	// The connection.
	fd            int // -1: none
	events        uint32
	blocked       bool // the socket takes no more: waiting for EPOLLOUT
	hold          bool // passive side: nothing may leave before the first FPDU
	crc           bool
	dial          *dialing
	local, remote netip.AddrPort

	scq, rcq *cq
	srq      *srq
	rq       recvQueue
	sq       sendQueue
	out      output
	rx       input
	serve    responder
	fault    *fault // found, waiting for the READs before it to be answered

	mrs     [2]*mr // the last regions looked up: local, remote
	onDirty bool
	onReady bool
	stalled bool // no receive for the SEND at the head of rx
}

var _ verbs.QP = (*qp)(nil)

// CreateQP implements verbs.PD. EINVAL: foreign or missing queues, capacities
// over the device's limits; EOPNOTSUPP: AckRemote.
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
	if a.Ack == verbs.AckRemote {
		return nil, fmt.Errorf("soft: AckRemote is %w; use AckLocal: %w", errUnsupported, unix.EOPNOTSUPP)
	}
	c := a.Cap
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	if s != nil {
		c.MaxRecvWR = 0
	}
	at := d.Attr()
	if c.MaxSendWR < 0 || c.MaxSendWR > maxWR || c.MaxRecvWR < 0 || c.MaxRecvWR > maxWR ||
		c.MaxSendSGE > maxSGE || c.MaxRecvSGE > maxSGE ||
		c.MaxInline < 0 || c.MaxInline > maxInline || c.ReadDepth < 0 || c.ReadDepth > at.MaxReadDepth {
		return nil, fmt.Errorf("soft: queue pair capacities %+v exceed the device's limits: %w", c, unix.EINVAL)
	}
	d.qpn = (d.qpn + 1) & 0xffffff
	q := &qp{dev: d, pd: p, attr: a, cap: c, num: d.qpn, state: verbs.QPInit, fd: -1, scq: scq, rcq: rcq, srq: s}
	q.crc = a.CRC == verbs.CRCOn && d.opt.CRC == verbs.CRCOn
	q.sq.init(c)
	if s == nil {
		n := ceilPow2(max(c.MaxRecvWR, 1))
		q.rq = recvQueue{w: newRecvWRs(n, c.MaxRecvSGE), cap: uint64(c.MaxRecvWR)}
	} else {
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

func (q *qp) Num() uint32          { return q.num }
func (q *qp) State() verbs.QPState { return q.state }
func (q *qp) Cap() verbs.QPCap     { return q.cap }
func (q *qp) Context() any         { return q.attr.Context }

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wr []verbs.RecvWR) (int, error) {
	if q.srq != nil {
		return 0, errOnSRQ
	}
	if q.destroyed {
		return 0, errDestroyed
	}
	n, err := q.rq.post(wr)
	if n == 0 {
		return n, err
	}
	if q.state == verbs.QPErr {
		q.flushRecvs()
	} else if q.stalled {
		q.unstall()
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
	e := q.scq.next()
	e.wc = verbs.WC{WRID: s.wrid, Status: st, QPNum: q.num}
	if st == verbs.WCSuccess {
		switch s.op {
		case verbs.OpRDMAWrite:
			e.wc.Op = verbs.WCRDMAWrite
		case verbs.OpRDMARead:
			e.wc.Op = verbs.WCRDMARead
			e.wc.ByteLen = uint32(s.length)
		}
	}
	e.qp, e.pos, e.recv = q, pos, false
	q.scq.notify(st != verbs.WCSuccess)
}

// completeRecv adds a completion of the receive queue for w, which it frees.
func (q *qp) completeRecv(w *recvWR, st verbs.WCStatus, n uint32, solicited bool) {
	e := q.rcq.next()
	e.wc = verbs.WC{WRID: w.wrid, Status: st, QPNum: q.num, Op: verbs.WCRecv}
	if st == verbs.WCSuccess {
		e.wc.ByteLen = n
	}
	e.qp, e.recv = q, true
	if q.srq != nil {
		e.qp = nil
		q.srq.put(w)
	}
	q.rcq.notify(solicited || st != verbs.WCSuccess)
}

func (q *qp) stall() {
	q.stalled = true
	q.interest(q.events &^ (unix.EPOLLIN | unix.EPOLLRDHUP))
	if q.srq != nil {
		q.srq.waiting = append(q.srq.waiting, q)
	}
}

// unstall resumes reading after a receive was posted. The caller takes q off
// the SRQ's list.
func (q *qp) unstall() {
	q.stalled = false
	if q.fd >= 0 {
		q.interest(q.events | unix.EPOLLIN)
		q.dev.markReady(q)
	}
}

// interest sets the epoll events q waits for.
func (q *qp) interest(ev uint32) {
	if ev != q.events && q.fd >= 0 {
		q.events = ev
		// It cannot fail for a descriptor that is registered.
		_ = q.dev.watch(unix.EPOLL_CTL_MOD, q.fd, q.slot, ev)
	}
}

// region looks up a key for local use.
func (q *qp) region(key uint32) *mr {
	if m := q.mrs[0]; m != nil && m.key == key && !m.dead {
		return m
	}
	m := q.dev.keys.get(key)
	q.mrs[0] = m
	return m
}

// remoteRegion looks up a key that the peer sent.
func (q *qp) remoteRegion(stag uint32) *mr {
	if m := q.mrs[1]; m != nil && m.key == stag && !m.dead {
		return m
	}
	m := q.dev.keys.get(stag)
	q.mrs[1] = m
	return m
}

// access checks a remote request on [to, to+n) of stag and returns the memory,
// or the Terminate codes' common part: which check failed.
func (q *qp) access(stag uint32, to, n uint64, right verbs.Access, begun bool) ([]byte, *mr, protection) {
	m := q.remoteRegion(stag)
	switch {
	case m == nil:
		return nil, nil, badSTag
	case m.pd != q.pd || !begun && !m.open(q.attr.Peer):
		return nil, nil, badAssoc
	case to+n < to:
		return nil, nil, badWrap
	}
	b := m.slice(to, n)
	switch {
	case b == nil:
		return nil, nil, badBounds
	case m.access&right == 0 || q.attr.Access&right == 0:
		return nil, nil, badRights
	}
	return b, m, 0
}

// protection is the outcome of an access check, 0 for good.
type protection uint8

const (
	badSTag protection = iota + 1
	badBounds
	badAssoc
	badWrap
	badRights
)

// write and read give the Terminate code for a tagged segment or a Read
// Request that failed the check.
func (p protection) write() iwarp.Code {
	return [...]iwarp.Code{0, iwarp.TermTaggedSTag, iwarp.TermTaggedBounds, iwarp.TermTaggedAssoc, iwarp.TermTaggedWrap, iwarp.TermAccess}[p]
}

func (p protection) read() iwarp.Code {
	return [...]iwarp.Code{0, iwarp.TermReadSTag, iwarp.TermReadBounds, iwarp.TermReadAssoc, iwarp.TermReadWrap, iwarp.TermAccess}[p]
}

// resolve finds the memory of [off, off+n) of an SGL and leaves it in the
// device's scratch. Regions must belong to pd and grant need.
func (q *qp) resolve(sgl []verbs.SGE, pd *pd, off, n uint64, need verbs.Access) ([]piece, bool) {
	ps := q.dev.io.pieces[:0]
	for i := range sgl {
		if n == 0 {
			break
		}
		l := uint64(sgl[i].Length)
		if off >= l {
			off -= l
			continue
		}
		k := min(l-off, n)
		m := q.region(sgl[i].LKey)
		if m == nil || m.pd != pd || m.access&need != need {
			return nil, false
		}
		b := m.slice(sgl[i].Addr+off, k)
		if b == nil || sgl[i].Addr+off < off {
			return nil, false
		}
		ps = append(ps, piece{b, m})
		off = 0
		n -= k
	}
	return ps, n == 0
}
