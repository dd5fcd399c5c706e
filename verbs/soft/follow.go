package soft

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// An I/O thread reads, sums and places the segments of a WRITE or READ response of which the owner has
// handled the beginning. It goes on until it finds what it does not know: the end of the message, another
// message, a fault. That stays in the stage for the owner. It reads into the stage and not into place: if
// somebody takes a page away, the thread waits for it without a lock of the socket. So it opens records of TLS there, too.

// followMost is how much a thread reads before the owner looks at the queue pair again.
const followMost = 1 << 20

// following is what a thread knows of the input that it reads.
type following struct {
	x    *input
	rest int     // of TLS: the beginning of a record, in records
	to   []piece // memory for what is missing of the message
	room uint64  // bytes of it for segments that have not begun
	part []piece // of to, for one call

	segs, begun, placed, ended int  // segments that it began, their payload, what it placed, payload of those that ended
	more                       bool // may be there
	end                        bool // the peer sends no more
}

// follow gives the input to a thread. It returns false if that is not worth it or none is idle.
func (q *qp) follow() bool {
	x, t := &q.rx, q.dev.threads
	if !x.bulk && !x.placing || x.placing && x.left < asideMin || !q.follows() {
		return false
	}
	ps, ok := q.expected()
	if !ok || slices.ContainsFunc(ps, func(p piece) bool { return p.mr.parent != nil }) {
		return false
	}
	q.wholeStage()
	j := t.take(q)
	j.pieces = append(j.pieces, ps...)
	f := &j.following
	*f = following{x: x, to: j.pieces, part: f.part[:0]}
	for i := range ps {
		ps[i].mr.used++
		f.room += uint64(len(ps[i].mem))
	}
	if x.placing {
		f.room -= uint64(x.left)
	}
	if q.tls != nil {
		f.rest = copy(j.records, q.tls.rest)
	}
	x.job, x.owes, j.iovs = j, 1, 1
	q.listen()
	t.work <- j // has room for all threads
	return true
}

// follows reports whether a thread may go on with the message that the input is in, or with the next one if that
// is like the last.
func (q *qp) follows() bool {
	op := q.rx.h.Op
	return (op == iwarp.OpWrite || op == iwarp.OpReadResponse) && q.lends(&q.rx.share) && q.park.empty() && q.tap() == nil
}

// expected returns the memory for what is missing of a message in the middle of which the input is: of a WRITE
// that of the region from there on.
func (q *qp) expected() ([]piece, bool) {
	x, t := &q.rx, &q.rx.to
	if !x.placing && x.h.Last {
		return nil, false
	}
	switch x.h.Op {
	case iwarp.OpWrite:
		m := t.mr
		if m == nil || m.dead || m.key != t.key {
			return nil, false
		}
		ps := q.dev.io.pieces[:1]
		at := t.addr + t.off
		ps[0] = piece{m.slice(at, m.iova+uint64(len(m.mem))-at), m}
		return ps, len(ps[0].mem) > 0
	case iwarp.OpReadResponse:
		if t.sgl == nil || q.sq.waits.empty() {
			return nil, false
		}
		n := q.sq.at(q.sq.waits.oldest().pos).length
		return q.resolve(t.sgl, t.pd, t.off, n-t.off, verbs.AccessLocalWrite)
	}
	return nil, false
}

// read is what a thread does.
func (j *job) read() {
	x := j.x
	for j.more = true; j.more && j.n < followMost; {
		x.w, x.r = copy(x.stage, x.stage[x.r:x.w]), 0
		to := x.stage[x.w:]
		if j.tls != nil {
			to = j.records[j.rest:j.recordsMissing()]
		} else {
			to = to[:x.missing()]
		}
		j.io.set(0, to)
		n, again, err := j.io.recvmsg(j.fd, 1)
		if n == 0 {
			j.err, j.end, j.more = err, !again && err == nil, false
			return
		}
		j.calls++
		j.n += n
		j.more = n == len(to)
		if j.tls != nil {
			j.open(j.rest + n)
		} else {
			x.w += n
		}
		if !j.consume() || j.err != nil {
			return
		}
	}
}

// open opens the whole records among the first n bytes of records into the stage.
func (j *job) open(n int) {
	x, b := j.x, j.records[:n]
	for {
		size, err := tls13.RecordLen(b)
		if err != nil || size == 0 || len(b) < size {
			j.err = err
			break
		}
		k, err := j.tls.In.Open(x.stage[x.w:], b[:size])
		if err != nil {
			j.err = err
			break
		}
		x.w += k
		b = b[size:]
	}
	j.rest = copy(j.records, b)
}

// recordsMissing is missing for TLS: up to where in records a thread reads. The record at hand ends there or before.
func (j *job) recordsMissing() int {
	n := j.x.missing()
	n += (n/tls13.MaxPlain + 2) * tls13.Overhead
	size, _ := tls13.RecordLen(j.records[:j.rest])
	return max(n, size)
}

// missing returns how much a thread reads: the rest of the frame at hand and the next header, or, behind
// the end of the message, what may come there.
func (x *input) missing() int {
	b := x.stage[:x.w]
	switch {
	case x.placing && x.h.Last:
		return x.left + x.trailer - len(b) + bulkTail
	case x.placing:
		return x.left + x.trailer - len(b) + iwarp.TaggedLen
	case len(b) >= iwarp.LenField:
		return max(iwarp.FPDUSize(iwarp.ULPDULen(b))-len(b), 0) + iwarp.TaggedLen
	}
	return iwarp.TaggedLen
}

// consume places what is in the stage of the message. It returns false if what follows is the owner's.
func (j *job) consume() bool {
	for x := j.x; ; {
		b := x.stage[x.r:x.w]
		switch {
		case x.placing && x.left > 0:
			k := min(x.left, len(b))
			if k == 0 {
				return true
			}
			j.place(b[:k])
			x.left -= k
			x.r += k
		case x.placing && x.h.Last:
			return false
		case x.placing:
			if len(b) < x.trailer {
				return true
			}
			x.r += x.trailer
			x.placing = false
			j.ended += x.h.Payload()
		case len(b) < iwarp.TaggedLen:
			return true
		default:
			if begun, more := j.segment(b); !begun {
				return more
			}
		}
	}
}

// segment begins the next segment of the message, with b. If it does not, it says whether more of a frame is
// needed to know.
func (j *job) segment(b []byte) (begun, more bool) {
	x, h := j.x, iwarp.Header{}
	if j.enough.Load() {
		return false, false
	}
	if iwarp.ParseHeader(b, &h) != nil || h.Op != x.h.Op || h.STag != x.h.STag || h.TO != x.h.TO+uint64(x.h.Payload()) {
		return false, false
	}
	n := h.Payload()
	if !h.Last && n < asideMin {
		return false, false // small ones are read many at a time
	}
	if n == 0 || uint64(n) > j.room || h.Op == iwarp.OpReadResponse && h.Last != (uint64(n) == j.room) {
		return false, false
	}
	size := iwarp.FPDUSize(h.ULPDU)
	if j.crc && len(b) < size {
		return false, true
	}
	if j.crc && !iwarp.CheckCRC(b[:size]) {
		return false, false
	}
	x.h, x.placing, x.left, x.trailer = h, true, n, size-h.Len()-n
	x.r += h.Len()
	j.room -= uint64(n)
	j.begun += n
	j.segs++
	return true, false
}

// place copies b to where it goes.
func (j *job) place(b []byte) {
	j.part = j.part[:0]
	for n := len(b); n > 0; {
		p := &j.to[0]
		k := min(n, len(p.mem))
		j.part = append(j.part, piece{mem: p.mem[:k]})
		if p.mem = p.mem[k:]; len(p.mem) == 0 {
			j.to = j.to[1:]
		}
		n -= k
	}
	if !moveAside(unix.SYS_PROCESS_VM_WRITEV, b, j.part) {
		scatter(b, j.part)
	}
	j.placed += len(b)
}

// followed takes over where the thread of j has stopped.
func (q *qp) followed(j *job) {
	d, x := q.dev, &q.rx
	x.job = nil
	q.carries(j.begun)
	clear(j.part)
	d.stats.BytesIn += uint64(j.n)
	d.stats.CallsIn += uint64(j.calls)
	d.stats.FramesIn += uint64(j.segs)
	x.to.off += uint64(j.placed)
	if x.h.Op == iwarp.OpWrite {
		x.written += uint64(j.begun)
		x.writeMid, x.writeTO = !x.h.Last, x.h.TO+uint64(x.h.Payload())
		q.moved(j.pieces[0].mr, uint64(j.begun), 0)
	} else {
		q.sq.readOff += uint64(j.ended)
	}
	if j.n > 0 {
		q.heard = true
		q.metered(j.n)
	}
	if j.tls != nil {
		j.tls.keep(d, j.records[:j.rest])
	}
	if q.state == releasing {
		q.fail(q.fault)
		return
	}
	q.parse()
	switch {
	case !q.state.connected():
	case j.err != nil && j.tls != nil:
		q.insecure(j.err)
	case j.err != nil:
		q.lost(j.err)
	case !j.end || !q.state.receives() || !q.intake.reads() || q.held:
	case j.tls != nil:
		q.lost(errCutOff)
	default:
		q.ended()
	}
}

// enough tells a thread that reads for q to begin nothing more.
func (q *qp) enough() {
	if j := q.rx.job; j != nil {
		j.enough.Store(true)
	}
}

// readOn goes on behind what a thread has read: more may be there.
func (q *qp) readOn(more bool) {
	if more {
		q.receive()
	} else {
		q.leaveStage()
	}
	q.listen()
}
