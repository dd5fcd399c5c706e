//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// A work request's id at the adapter consists of its kind, its queue pair and its position.
const (
	kindSend   = 0
	kindRecv   = 1
	kindSRQ    = 2
	kindMarker = 3 // of this package: a WRITE of no bytes
	posBits    = 40
	posMask    = 1<<posBits - 1
	indexMask  = 1<<(62-posBits) - 1
)

func wrID(kind int, index uint32, pos uint64) uint64 {
	return uint64(kind)<<62 | uint64(index)<<posBits | pos&posMask
}

// slot is the record of a send request.
type slot struct {
	wrid     uint64
	op       verbs.Opcode
	asked    bool // signaled for its owner
	reports  bool // signaled at the adapter
	resolved bool
	status   verbs.WCStatus
	n        uint32 // ByteLen
	vendor   uint32
	kept     *verbs.SendWR // set while the request is not at the adapter
}

// qp implements verbs.QP. Positions in its send queue count up without end:
//
//	free <= done <= sent <= tail
//
// A slot is outstanding until a completion of it or of a later one is polled (free). done
// is the first position without a known outcome. sent is the first position that is not at
// the adapter. Requests are kept here while there is no connection yet, in SQD, over siw
// while they wait for a READ, and behind a request that has to be kept.
//
// Some drivers lose outstanding requests when a queue pair fails, or requests that are
// posted after that. So this package moves a queue pair that fails to ERR, takes its
// completions, destroys it, and then flushes the requests without an outcome.
type qp struct {
	dev      *Device
	pd       *pd
	scq, rcq *cq
	srq      *srq
	attr     verbs.QPInitAttr
	index    uint32
	c        *C.struct_ibv_qp // nil in RESET and after it was destroyed
	num      uint32
	state    verbs.QPState
	caps     verbs.Caps
	depth    int // negotiated
	serve    int // how many READs and atomics the peer may have in flight

	w                      []slot // power of two
	tail, sent, done, free uint64
	top                    uint64 // position behind the last request with a completion
	reading                int    // READs at the adapter without a completion
	rq                     recvQueue
	marker                 uint64 // position of the last marker posted, and whether it is due
	marked, marking        bool
	poisoned               bool // the first kept request is too long

	id          *cmID
	linked      bool // Connect or Accept was called
	passive     bool
	established bool
	mute        bool // passive over iWARP, and nothing has arrived from the peer yet
	heard       bool
	closing     bool // Disconnect was called
	failing     error
	failed      bool // a request was reported as failed
	byOwner     bool // the owner caused the end
	dying       bool // in ERR, the adapter may still report
	told        bool // CMDisconnected was sent, or must not be
	gone        bool
	stats       verbs.QPStats
}

// CreateQP implements verbs.PD.
func (p *pd) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	d := p.dev
	q := &qp{dev: d, pd: p, attr: a}
	var ok bool
	if q.scq, ok = a.SendCQ.(*cq); !ok || q.scq.dev != d || q.scq.gone {
		return nil, invalid("no send completion queue of this device")
	}
	if q.rcq, ok = a.RecvCQ.(*cq); !ok || q.rcq.dev != d || q.rcq.gone {
		return nil, invalid("no receive completion queue of this device")
	}
	if a.SRQ != nil {
		if q.srq, ok = a.SRQ.(*srq); !ok || q.srq.pd.dev != d || q.srq.gone {
			return nil, invalid("no shared receive queue of this device")
		}
		q.attr.Cap.MaxRecvWR = 0
	}
	if err := d.checkQP(&q.attr); err != nil {
		return nil, err
	}
	c := &q.attr.Cap
	q.w = make([]slot, ceilPow2(max(c.MaxSendWR, 1)))
	q.rq.ids, q.rq.cap = make([]uint64, ceilPow2(max(c.MaxRecvWR, 1))), uint64(c.MaxRecvWR)
	if err := q.create(); err != nil {
		return nil, err
	}
	p.used++
	q.scq.users++
	q.rcq.users++
	if q.srq != nil {
		q.srq.users++
	}
	return q, nil
}

func (d *Device) checkQP(a *verbs.QPInitAttr) error {
	c, l := &a.Cap, &d.attr
	in := func(n, limit int) bool { return n >= 0 && n <= limit }
	switch {
	case !in(c.MaxSendWR, l.MaxSendWR) || !in(c.MaxRecvWR, l.MaxRecvWR) || !in(c.MaxSendSGE, l.MaxSGE) || !in(c.MaxRecvSGE, l.MaxSGE) ||
		!in(c.MaxInline, l.MaxInline) || !in(c.ReadDepth, l.MaxReadDepth):
		return invalid("capacities %+v, limits %+v", *c, *l)
	case !a.RNRRetry.Valid():
		return invalid("RNR retry %d", a.RNRRetry)
	case !a.MinRNRTimer.Valid():
		return invalid("RNR timer %d", a.MinRNRTimer)
	case a.CRC > verbs.CRCOff:
		return invalid("CRC mode %d", a.CRC)
	case a.Ack > verbs.AckLocal:
		return invalid("acknowledgement mode %d", a.Ack)
	case a.Access&^(rights|verbs.AccessPrivate|verbs.AccessRestricted) != 0:
		return invalid("unknown access rights %#x", uint64(a.Access))
	case a.Ack == verbs.AckRemote && l.Caps&verbs.CapRemoteAck == 0:
		return fmt.Errorf("ibv: acknowledgement mode AckRemote over iWARP: %w", unix.EOPNOTSUPP)
	}
	return nil
}

// create makes the adapter's queue pair, in INIT.
func (q *qp) create() error {
	d, c := q.dev, &q.attr.Cap
	a := C.struct_ibvx_qp_attr{
		send_wr: C.uint32_t(c.MaxSendWR + extraSlots), recv_wr: C.uint32_t(max(c.MaxRecvWR, 1)), send_sge: C.uint32_t(max(c.MaxSendSGE, 1)),
		recv_sge: C.uint32_t(max(c.MaxRecvSGE, 1)), max_inline: C.uint32_t(c.MaxInline), access: C.uint32_t(q.access()),
		port: C.uint32_t(d.port), iwarp: b2i(d.iwarp),
	}
	var hw *C.struct_ibv_srq
	if q.srq != nil {
		hw = q.srq.c
	}
	var e C.int
	if q.c = C.ibvx_create_qp(q.pd.c, q.scq.c, q.rcq.c, hw, &a, &e); q.c == nil {
		return errno(e, "queue pair")
	}
	d.last = (d.last + 1) & indexMask
	for d.qps[d.last] != nil {
		d.last = (d.last + 1) & indexMask
	}
	q.index, q.num, q.state = d.last, uint32(q.c.qp_num), verbs.QPInit
	d.qps[q.index] = q
	q.caps, q.depth, q.serve = d.attr.Caps, c.ReadDepth, c.ReadDepth
	return nil
}

func (q *qp) access() verbs.Access {
	return q.attr.Access&remote | verbs.AccessLocalWrite
}

// Num implements verbs.QP.
func (q *qp) Num() uint32 { return q.num }

// State implements verbs.QP.
func (q *qp) State() verbs.QPState { return q.state }

// Context implements verbs.QP.
func (q *qp) Context() any { return q.attr.Context }

// Stats implements verbs.QP. An adapter does not report RNR.
func (q *qp) Stats() verbs.QPStats {
	if !q.gone && !q.dev.closed {
		q.rcq.stage()
	}
	return q.stats
}

// Cap implements verbs.QP.
func (q *qp) Cap() verbs.QPCap {
	c := q.attr.Cap
	c.ReadDepth, c.Caps = q.depth, q.caps
	return c
}

func (q *qp) at(pos uint64) *slot { return &q.w[pos&uint64(len(q.w)-1)] }

// handle handles a completion of the adapter.
func (d *Device) handle(c *cq, wc *C.struct_ibvx_wc) {
	id := uint64(wc.id)
	if id>>62 == kindSRQ {
		d.handleSRQ(c, wc)
		return
	}
	q := d.qps[uint32(id>>posBits)&indexMask]
	if q == nil {
		return // the queue pair was destroyed, and its requests with it
	}
	switch id >> 62 {
	case kindSend:
		pos := q.done + (id-q.done)&posMask
		if pos >= q.sent || q.at(pos).resolved {
			return
		}
		s := q.at(pos)
		s.resolved, s.status, s.n, s.vendor = true, verbs.WCStatus(wc.status), uint32(wc.len), uint32(wc.vendor)
		q.top = max(q.top, pos+1)
		if s.op.Reads() {
			q.reading--
		}
	case kindMarker:
		if wc.status == C.IBV_WC_SUCCESS {
			pos := q.done + (id-q.done)&posMask
			if pos <= q.sent {
				q.top = max(q.top, pos)
				q.marked = q.marked || q.marking && pos == q.marker
			}
		} else if q.failing == nil && q.state != verbs.QPErr {
			q.fail(statusError(verbs.WCStatus(wc.status), "a request of our own"))
		}
	case kindRecv:
		q.received(wc)
		return
	}
	q.advance()
	q.resume()
}

// advance reports the known outcomes in order. A request that does not report has succeeded
// when a later one has, because adapters carry out requests in order. siw may complete a
// request before an earlier READ, but READs do report.
func (q *qp) advance() {
	for q.done != q.sent {
		s := q.at(q.done)
		if !s.resolved {
			if s.reports || q.done >= q.top {
				break
			}
			if q.failed {
				q.report(s, q.done, verbs.WCWRFlushErr)
			}
			q.done++
			continue
		}
		if s.status != verbs.WCSuccess || s.asked || q.failed {
			q.report(s, q.done, s.status)
		}
		if s.status != verbs.WCSuccess && q.failing == nil && q.state != verbs.QPErr {
			q.fail(statusError(s.status, "a request"))
		}
		q.done++
	}
	if q.marked && q.done == q.sent {
		q.marked, q.marking = false, false
		q.drained()
	}
}

// report adds the completion of a request. After a request that failed, no later one is
// reported as a success: siw may have carried out requests behind a READ that failed.
func (q *qp) report(s *slot, pos uint64, status verbs.WCStatus) {
	if q.failed && status == verbs.WCSuccess {
		status = verbs.WCWRFlushErr
	}
	q.failed = q.failed || status != verbs.WCSuccess
	wc := verbs.WC{WRID: s.wrid, Status: status, QPNum: q.num}
	if status == verbs.WCSuccess {
		wc.Op = s.op.Completion()
		if s.op.Reads() {
			wc.ByteLen = s.n
		}
	} else {
		wc.VendorErr = s.vendor
	}
	q.scq.add(cqe{wc: wc, qp: q, pos: pos})
}

func (d *Device) byNum(num uint32) *qp {
	for _, q := range d.qps {
		if q.num == num {
			return q
		}
	}
	return nil
}

func statusError(s verbs.WCStatus, what string) error {
	if s == verbs.WCWRFlushErr {
		return errFlushed
	}
	return fmt.Errorf("ibv: %s ended with status %d: %w", what, s, unix.EIO)
}

var errFlushed = fmt.Errorf("ibv: the connection ended: %w", unix.ECONNRESET)

var (
	errRQFull = fmt.Errorf("ibv: receive queue full: %w", unix.ENOMEM)
	errSQFull = fmt.Errorf("ibv: send queue full: %w", unix.ENOMEM)
	errLacks  = errors.Join(unix.EOPNOTSUPP, unix.EINVAL)
)
