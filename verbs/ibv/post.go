//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/rdsd/rdsd/verbs"
)

// PostSend implements verbs.QP.
func (q *qp) PostSend(wr []verbs.SendWR) (int, error) {
	if q.gone || q.dev.closed {
		return 0, errDestroyed
	}
	if !q.linked && q.state != verbs.QPErr {
		return 0, invalid("PostSend in %v, before Connect or Accept", q.state)
	}
	n := 0
	var err error
	for n < len(wr) && err == nil {
		if q.direct() {
			var k int
			k, err = q.postBatch(wr[n:])
			n += k
			continue
		}
		if err = q.check(&wr[n]); err == nil {
			q.keep(&wr[n])
			n++
		}
	}
	if q.state == verbs.QPErr && q.c == nil {
		for ; q.done != q.tail; q.done++ {
			q.at(q.done).kept = nil
			q.report(q.at(q.done), q.done, verbs.WCWRFlushErr)
		}
		q.sent = q.tail
	}
	q.dev.settle()
	return n, err
}

// direct reports whether requests go to the adapter at once.
func (q *qp) direct() bool {
	return q.state == verbs.QPRTS && !q.mute && !q.closing && !q.poisoned && q.sent == q.tail && q.failing == nil
}

// postBatch posts the requests that fit a batch. One that is too long or waits is kept.
func (q *qp) postBatch(wr []verbs.SendWR) (int, error) {
	n, sges, inline, reads := 0, 0, 0, q.reading
	var err error
	first := q.tail
	for n < batch && n < len(wr) {
		w := &wr[n]
		if err = q.check(w); err != nil {
			break
		}
		if q.tooLong(w) || q.waits(w, reads) {
			break
		}
		q.enter(w)
		q.fill(n, w, q.tail-1, &sges, &inline)
		n++
		if w.Op.Reads() {
			reads++
		}
	}
	if n > 0 {
		if k, e := q.submit(n); e != nil {
			q.tail = first + uint64(k)
			q.sent = q.tail
			return k, e
		}
		q.sent = q.tail
	}
	if err == nil && n < len(wr) && n < batch { // too long, or it waits
		q.keep(&wr[n])
		q.push()
		n++
	}
	return n, err
}

// enter fills the slot of a request.
func (q *qp) enter(w *verbs.SendWR) {
	asked := w.Flags&verbs.SendSignaled != 0 || q.attr.SQSigAll
	*q.at(q.tail) = slot{wrid: w.WRID, op: w.Op, asked: asked, reports: asked || q.dev.iwarp && w.Op == verbs.OpRDMARead}
	q.tail++
}

// keep keeps a request here, with copies of its lists and inline data.
func (q *qp) keep(w *verbs.SendWR) {
	q.enter(w)
	c := *w
	c.SGL = append([]verbs.SGE(nil), w.SGL...)
	if w.Flags&verbs.SendInline != 0 {
		c.Inline, c.SGL = q.gather(nil, w), nil
	}
	q.at(q.tail - 1).kept = &c
}

// gather appends the inline data of a request whose keys were checked.
func (q *qp) gather(to []byte, w *verbs.SendWR) []byte {
	to = append(to, w.Inline...)
	for _, e := range w.SGL {
		m := q.dev.mrs[e.LKey]
		off := e.Addr - m.iova
		to = append(to, m.mem[off:off+uint64(e.Length)]...)
	}
	return to
}

// push posts the kept requests that may go to the adapter now.
func (q *qp) push() {
	for q.state == verbs.QPRTS && !q.mute && !q.poisoned && q.sent != q.tail && q.failing == nil {
		n, sges, inline, reads := 0, 0, 0, q.reading
		for pos := q.sent; pos != q.tail && n < batch; pos++ {
			w := q.at(pos).kept
			if q.tooLong(w) || q.waits(w, reads) {
				break
			}
			q.fill(n, w, pos, &sges, &inline)
			n++
			if w.Op.Reads() {
				reads++
			}
		}
		if n == 0 && q.waiting() {
			return
		}
		if n == 0 {
			q.poisoned = true
			q.mark()
			return
		}
		k, err := q.submit(n)
		for range k {
			q.at(q.sent).kept = nil
			q.sent++
		}
		if err != nil {
			q.fail(err)
		}
	}
}

func (q *qp) tooLong(w *verbs.SendWR) bool {
	n := uint64(len(w.Inline))
	for i := range w.SGL {
		n += uint64(w.SGL[i].Length)
	}
	return n > uint64(q.dev.attr.MaxMsg)
}

// waits reports whether a request must be kept until earlier READs are complete; reads of them
// are at the adapter. A request that waits at the head of siw's send queue holds up siw's answers
// to the peer's READs, too. So two siw that both READ would wait for each other for ever.
func (q *qp) waits(w *verbs.SendWR, reads int) bool {
	switch {
	case !q.dev.siw || reads == 0:
		return false
	case w.Op.Reads():
		return reads >= q.depth
	}
	return w.Flags&verbs.SendFence != 0
}

// waiting reports whether the first kept request waits for a READ.
func (q *qp) waiting() bool {
	if q.sent == q.tail {
		return false
	}
	w := q.at(q.sent).kept
	return !q.tooLong(w) && q.waits(w, q.reading)
}

// resume posts the requests that have waited for a READ.
func (q *qp) resume() {
	if q.sent == q.tail || !q.dev.siw || q.state != verbs.QPRTS || q.failing != nil {
		return
	}
	q.push()
	if q.closing && q.sent == q.tail && q.failing == nil {
		q.mark()
	}
}

// submit posts the n requests of the batch to the adapter.
func (q *qp) submit(n int) (int, error) {
	var posted C.int
	e := C.ibvx_post_send(q.c, q.dev.b, C.int(n), &posted)
	q.stats.Sent += uint64(posted)
	for i := range int(posted) {
		if verbs.Opcode(q.dev.sends[i].op).Reads() {
			q.reading++
		}
	}
	if e != 0 {
		return int(posted), errno(e, "posting requests")
	}
	return n, nil
}

// fill sets entry i of the batch.
func (q *qp) fill(i int, w *verbs.SendWR, pos uint64, sges, inline *int) {
	d := q.dev
	s := &d.sends[i]
	flags := w.Flags
	if q.at(pos).reports {
		flags |= verbs.SendSignaled
	}
	if d.iwarp && w.Op == verbs.OpRDMARead {
		flags &^= verbs.SendFence // READs are in order anyway, and siw rejects the flag
	}
	*s = C.struct_ibvx_send{
		id: C.uint64_t(wrID(kindSend, q.index, pos)), op: C.uint32_t(w.Op), flags: C.uint32_t(flags), imm: C.uint32_t(w.Imm),
		rkey: C.uint32_t(w.RKey), raddr: C.uint64_t(w.RemoteAddr), first: C.uint32_t(*sges),
		compare: C.uint64_t(w.Atomic.CompareAdd), swap: C.uint64_t(w.Atomic.Swap),
	}
	if flags&verbs.SendInline == 0 {
		n := d.copySGL(*sges, w.SGL)
		s.nsge = C.uint32_t(n)
		*sges += n
		return
	}
	n := len(q.gather(d.inline[*inline:*inline:len(d.inline)], w))
	if n > 0 {
		d.sges[*sges] = verbs.SGE{Addr: uint64(uintptr(unsafe.Pointer(&d.inline[*inline]))), Length: uint32(n)}
		s.nsge = 1
		*sges++
		*inline += n
	}
}

// check checks a request before it is posted.
func (q *qp) check(w *verbs.SendWR) error {
	if w.Flags&^(verbs.SendFence|verbs.SendSignaled|verbs.SendSolicited|verbs.SendInline) != 0 {
		return invalid("unknown send flags %#x", uint8(w.Flags))
	}
	read, atomic := w.Op == verbs.OpRDMARead, false
	switch w.Op {
	case verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead:
	case verbs.OpSendWithImm, verbs.OpRDMAWriteWithImm:
		if q.caps&verbs.CapImm == 0 {
			return fmt.Errorf("ibv: %v: this device has no immediate data: %w", w.Op, errLacks)
		}
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		atomic = true
		if q.caps&verbs.CapAtomics == 0 || w.Atomic.Masked {
			return fmt.Errorf("ibv: %v: this device has no such atomics: %w", w.Op, errLacks)
		}
	default:
		return invalid("%v", w.Op)
	}
	if w.Flags&verbs.SendInline != 0 {
		if err := q.checkInline(w, read || atomic); err != nil {
			return err
		}
	} else if w.Inline != nil {
		return invalid("inline data without SendInline")
	}
	limit := q.attr.Cap.MaxSendSGE
	if read {
		limit = min(limit, q.dev.attr.MaxReadSGE)
	}
	if len(w.SGL) > limit {
		return invalid("%d SGEs, granted %d", len(w.SGL), limit)
	}
	if err := checkSGL(w.SGL); err != nil {
		return err
	}
	if (read || atomic) && q.attr.Cap.ReadDepth == 0 {
		return invalid("%v with a read depth of 0", w.Op)
	}
	if atomic && (len(w.SGL) != 1 || w.SGL[0].Length != 8) {
		return invalid("an atomic has one SGE of 8 bytes")
	}
	if q.tail-q.free == uint64(q.attr.Cap.MaxSendWR) {
		return errSQFull
	}
	return nil
}

func (q *qp) checkInline(w *verbs.SendWR, never bool) error {
	if never {
		return invalid("%v takes no inline data", w.Op)
	}
	if len(w.Inline) > 0 && len(w.SGL) > 0 {
		return invalid("inline data and an SGL")
	}
	n := uint64(len(w.Inline))
	for _, e := range w.SGL {
		if n += uint64(e.Length); n > uint64(q.attr.Cap.MaxInline) {
			break
		}
		m := q.dev.mrs[e.LKey]
		if m == nil || m.pd != q.pd || e.Addr < m.iova || e.Addr-m.iova > uint64(len(m.mem)) || uint64(len(m.mem))-(e.Addr-m.iova) < uint64(e.Length) {
			return invalid("inline data of an SGL needs a valid key and bounds")
		}
	}
	if n > uint64(q.attr.Cap.MaxInline) {
		return invalid("%d bytes of inline data, granted %d", n, q.attr.Cap.MaxInline)
	}
	return nil
}
