//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"github.com/rdsd/rdsd/verbs"
)

// recvQueue is a queue pair's own receive queue: free <= done <= tail.
type recvQueue struct {
	ids              []uint64 // by position, power of two
	cap              uint64
	tail, done, free uint64
}

// recvWC is the completion of a receive.
func (q *qp) recvWC(id uint64, wc *C.struct_ibvx_wc) verbs.WC {
	out := verbs.WC{WRID: id, Status: verbs.WCStatus(wc.status), QPNum: uint32(wc.qpn)}
	if wc.status != C.IBV_WC_SUCCESS {
		out.VendorErr = uint32(wc.vendor)
		return out
	}
	out.Op, out.ByteLen, out.Flags = verbs.WCRecv, uint32(wc.len), verbs.WCFlags(wc.flags)
	if wc.op == C.IBV_WC_RECV_RDMA_WITH_IMM {
		out.Op = verbs.WCRecvRDMAWithImm
	}
	if wc.flags != 0 {
		out.Imm = uint32(wc.imm)
	}
	if q != nil {
		q.stats.Received++
		q.listen()
	}
	return out
}

// received handles a completion of the queue pair's own receive queue.
func (q *qp) received(wc *C.struct_ibvx_wc) {
	pos := q.rq.done + (uint64(wc.id)-q.rq.done)&posMask
	if pos != q.rq.done || pos >= q.rq.tail {
		return
	}
	q.rq.done++
	q.rcq.add(cqe{wc: q.recvWC(q.rq.ids[pos&uint64(len(q.rq.ids)-1)], wc), qp: q, pos: pos, recv: true})
	q.recvFailed(verbs.WCStatus(wc.status))
}

// recvFailed ends the queue pair. If a set-up is refused, siw flushes the receives before
// the connection manager reports the refusal. Then the refusal is the reason.
func (q *qp) recvFailed(status verbs.WCStatus) {
	if status == verbs.WCWRFlushErr && q.linked && !q.established && !q.passive {
		return
	}
	if status != verbs.WCSuccess && q.failing == nil && q.state != verbs.QPErr {
		q.fail(statusError(status, "a receive"))
	}
}

func (d *Device) handleSRQ(c *cq, wc *C.struct_ibvx_wc) {
	pos := uint64(wc.id) & posMask
	q := d.byNum(uint32(wc.qpn))
	if q == nil || q.srq == nil {
		return
	}
	q.srq.taken()
	c.add(cqe{wc: q.recvWC(q.srq.ids[pos], wc), qp: q, srq: q.srq, pos: pos})
	q.recvFailed(verbs.WCStatus(wc.status))
}

// listen notes that something has arrived from the peer.
func (q *qp) listen() {
	if q.heard {
		return
	}
	q.heard = true
	if q.passive {
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncCommEst, QP: q})
	}
	q.unmute()
}

// unmute posts the requests that were kept until something arrived from the peer.
func (q *qp) unmute() {
	if q.mute {
		q.mute = false
		q.push()
	}
}

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wr []verbs.RecvWR) (int, error) {
	switch {
	case q.gone || q.dev.closed:
		return 0, errDestroyed
	case q.srq != nil:
		return 0, invalid("a receive on a queue pair with a shared receive queue")
	case q.state == verbs.QPReset:
		return 0, invalid("PostRecv in RESET")
	}
	d, done := q.dev, 0
	for done < len(wr) {
		n, sges := 0, 0
		var err error
		for n < batch && done+n < len(wr) {
			w := &wr[done+n]
			if err = checkRecv(w, q.attr.Cap.MaxRecvSGE); err != nil {
				break
			}
			if q.rq.tail-q.rq.free == q.rq.cap {
				err = errRQFull
				break
			}
			q.rq.ids[q.rq.tail&uint64(len(q.rq.ids)-1)] = w.WRID
			d.recvs[n] = C.struct_ibvx_recv{id: C.uint64_t(wrID(kindRecv, q.index, q.rq.tail)), first: C.uint32_t(sges)}
			nsge := d.recvSGL(sges, w.SGL)
			d.recvs[n].nsge = C.uint32_t(nsge)
			sges += nsge
			q.rq.tail++
			n++
		}
		if n > 0 {
			if q.c == nil { // the queue pair was destroyed
				for ; q.rq.done != q.rq.tail; q.rq.done++ {
					q.flushRecv(q.rq.done)
				}
			} else if q.state != verbs.QPErr { // in ERR it is flushed with the others
				var posted C.int
				e := C.ibvx_post_recv(q.c, nil, d.b, C.int(n), &posted)
				if e != 0 {
					q.rq.tail -= uint64(n - int(posted))
					return done + int(posted), errno(e, "posting receives")
				}
			}
			done += n
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
