package engine

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/verbs"
)

// devices are the devices that carry connections by queue pairs.
type devices struct {
	e *Engine

	rails    []*rail // one or two
	recvLeft int     // receive buffers not yet promised to a peer

	touched int // regions that have ended, which threads of the devices still touch

	rest      int64 // ns that a device without queue pairs is not asked; 0 with virtual time
	restUntil int64

	wc [32]verbs.WC // few: a turn goes beyond cqBytes by what they bring
	cm [16]verbs.CMEvent
}

// deviceRests reports whether the device may be left alone in this turn, for a
// system call less: it has no queue pair, and so nothing that hurries.
func (ds *devices) deviceRests(now int64) bool {
	if now < ds.restUntil {
		idle := true
		for _, r := range ds.rails {
			idle = idle && len(r.byQPN) == 0
		}
		if idle {
			return true
		}
	}
	ds.restUntil = now + ds.rest
	return false
}

// pollCQ handles a device's completions. When the queue is empty, connections
// that empty may learn that nothing of them is left in it.
func (ds *devices) pollCQ(r *rail) bool {
	total := 0
	for left := cqBytes; total < cqBudget && left > 0; {
		n := r.cq.Poll(ds.wc[:])
		ds.e.looks()
		for i := range n {
			if isRecv(&ds.wc[i]) {
				left -= int(ds.wc[i].ByteLen)
			}
			ds.complete(r, &ds.wc[i])
		}
		total += n
		if len(r.repost) > 0 {
			_ = r.postRecvs()
		}
		if n < len(ds.wc) {
			if len(ds.e.dirty.emptying) > 0 {
				ds.emptied(r)
			}
			break
		}
	}
	return total > 0
}

// MayBlock says whether the loop may wait for the devices' descriptors: a
// completion that comes from now on makes one readable. If that had to be asked
// for, the queue is to be looked at once more first.
func (e *Engine) MayBlock() bool {
	may := true
	for _, r := range e.devices.rails {
		if !r.arm || r.armed && !r.cq.Notified() {
			continue
		}
		err := r.cq.ReqNotify(false)
		r.armed = err == nil
		may = may && err != nil
	}
	return may
}

// untouched has f run when no thread of a device touches the memory of mr, which was deregistered.
func (ds *devices) untouched(mr verbs.MR, f func()) {
	ds.touched++
	verbs.Untouched(mr, func() {
		ds.touched--
		f()
	})
}

// Threads returns what the devices' threads have done. Only the goroutine that calls Turn may call it.
func (e *Engine) Threads() (s verbs.ThreadStats) {
	for _, r := range e.devices.rails {
		if d, ok := r.dev.(verbs.Threaded); ok {
			of := d.Threads()
			s.Calls += of.Calls
			s.Slow += of.Slow
		}
	}
	return s
}

// complete routes one completion. Those of a queue pair that is gone only give
// their receive buffer back.
func (ds *devices) complete(r *rail, wc *verbs.WC) {
	e := ds.e
	q := r.lastQP
	if q == nil || r.lastQPN != wc.QPNum {
		q = r.byQPN[wc.QPNum]
		r.lastQP, r.lastQPN = q, wc.QPNum
	}
	if isRecv(wc) {
		buf := int(wc.WRID &^ recvWRID)
		switch {
		case q == nil:
		case wc.Status == verbs.WCSuccess:
			mem := r.recvMem[buf*e.cfg.MaxSend:][:e.cfg.MaxSend]
			q.received(e.now, wc, mem[:min(int(wc.ByteLen), len(mem))])
		default:
			q.received(e.now, wc, nil)
		}
		r.repost = append(r.repost, r.recvWR(buf))
		return
	}
	if q != nil {
		q.sent(e.now, wc)
	}
}

// recvWRID marks receives: on an error completion the opcode is not valid.
// Package conn leaves this bit to its host.
const recvWRID = conn.HostWRID

func isRecv(wc *verbs.WC) bool { return wc.WRID&recvWRID != 0 }
