package soft

import (
	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// output is what a QP has to send: FPDUs in pieces, which are bytes of the stage
// (headers, trailers, copied payload) or of registered memory.
type output struct {
	// Lent by the device while something is pending, see lend.go.
	stage []byte // the one being filled
	first []byte // a small one that was filled before it
	segs  []piece

	tail       int // filled part of the stage
	sh, st     int // segs[sh:st] are pending
	pending    int // bytes in them
	total      uint64
	written    uint64 // total - pending
	whole      uint64 // so much was written when nothing was pending last: there a frame begins
	lastStaged bool   // segs[st-1] ends at stage[tail]

	// See threads.go.
	job    *job    // a thread writes what is pending, or a part of it; nil: none does
	bulk   bool    // something pending is worth a thread
	frames []frame // that are not whole, and that no thread has
	pieces []piece // theirs
	lends  bool    // what is made now may be left to a thread
	share
}

// outRoom reports whether an FPDU with staged bytes of the stage, at most stageSize,
// and pieces pieces fits now, and takes the memory for it. If it does not fit, it
// will when the output is empty.
func (q *qp) outRoom(staged, pieces int) bool {
	o := &q.out
	if o.pending == 0 {
		o.sh, o.st, o.tail, o.lastStaged, o.bulk, o.whole = 0, 0, 0, false, false, o.total
	}
	if o.st+pieces+2 > maxSegs {
		return false
	}
	if o.tail+staged <= len(o.stage) {
		return true
	}
	switch {
	case o.segs == nil:
		o.segs = q.dev.lent.getSegs()
		q.dev.writes.Add(&q.on.writes, q)
	case o.first != nil || len(o.stage) == stageSize:
		return false
	default:
		o.first = o.stage
	}
	size := smallStage
	if o.first != nil || staged > smallStage {
		size = stageSize
	}
	o.stage = q.dev.lent.getStage(size)
	o.tail, o.lastStaged = 0, false
	return true
}

// giveOut gives back the memory of the output. Nothing is pending.
func (q *qp) giveOut() {
	o := &q.out
	o.drop()
	if o.segs == nil {
		return
	}
	l := &q.dev.lent
	l.putStage(o.stage)
	if o.first != nil {
		l.putStage(o.first)
	}
	l.putSegs(o.segs)
	o.stage, o.first, o.segs = nil, nil, nil
	q.dev.writes.Del(&q.on.writes)
	q.dev.trimSoon()
}

// reserve returns n bytes of the stage. commit makes them output.
func (o *output) reserve(n int) []byte { return o.stage[o.tail : o.tail+n : o.tail+n] }

func (o *output) commit(n int) {
	if o.lastStaged {
		p := &o.segs[o.st-1]
		p.mem = p.mem[:len(p.mem)+n]
	} else {
		o.segs[o.st] = piece{mem: o.stage[o.tail : o.tail+n]}
		o.st++
		o.lastStaged = true
	}
	o.tail += n
	o.pending += n
	o.total += uint64(n)
}

func (o *output) ref(p piece) {
	o.segs[o.st] = p
	o.st++
	o.lastStaged = false
	o.pending += len(p.mem)
	o.total += uint64(len(p.mem))
}

// sent removes n written bytes.
func (o *output) sent(n int) {
	o.pending -= n
	o.written += uint64(n)
	for n > 0 {
		p := &o.segs[o.sh]
		if n < len(p.mem) {
			p.mem = p.mem[n:]
			return
		}
		n -= len(p.mem)
		*p = piece{}
		o.sh++
	}
}

// detach copies the bytes of region m that are still to be sent, so that the region
// may end.
func (o *output) detach(m *mr) {
	for i := o.sh; i < o.st; i++ {
		if p := &o.segs[i]; p.mr == m {
			p.mem, p.mr = append([]byte(nil), p.mem...), nil
		}
	}
}

// private returns a copy of all pending bytes.
func (o *output) private() []byte {
	b := make([]byte, 0, o.pending+iwarp.FPDUSize(iwarp.UntaggedLen+iwarp.MaxTerminate))
	for _, p := range o.segs[o.sh:o.st] {
		b = append(b, p.mem...)
	}
	return b
}

func (o *output) drop() {
	clear(o.segs[o.sh:o.st])
	o.sh, o.st, o.tail, o.pending, o.lastStaged, o.bulk = 0, 0, 0, 0, false, false
	o.forget()
}

// emit adds an FPDU to the output: the header hdr and n bytes of payload in ps. It
// returns false, without an effect, if there is no room now. It copies small
// payload, payload that needs a checksum and that others may write at the same
// time, and with I/O threads all, or leaves that to a thread.
func (q *qp) emit(hdr []byte, ps []piece, n int) bool {
	o := &q.out
	h := len(hdr)
	trailer := -(h+n)&3 + iwarp.CRCLen
	if q.markers {
		return q.emitMarked(hdr, ps, n)
	}
	copied := n <= copyLimit || o.lends
	if !copied && q.crc {
		for i := range ps {
			if ps[i].mr.access&verbs.AccessPrivate == 0 {
				copied = true
				break
			}
		}
	}
	staged, refs := h+trailer, len(ps)
	apart := copied && q.tls != nil && n >= tls13.MaxPlain // so that it begins a record
	switch {
	case apart:
		staged, refs = staged+n, 1
	case copied:
		staged, refs = staged+n, 0
	}
	if !q.outRoom(staged, refs) {
		return false
	}
	q.carries(n)
	if copied {
		f := o.reserve(staged)
		b := f[copy(f, hdr):]
		if o.lends && aside(ps, n) {
			o.leave(f, h, ps)
		} else {
			gather(b, ps)
			iwarp.Seal(f, q.crc)
		}
		if apart {
			o.commit(h)
			o.lastStaged = false
			o.commit(n)
			o.lastStaged = false
			o.commit(trailer)
		} else {
			o.commit(staged)
		}
		return true
	}
	copy(o.reserve(h), hdr)
	o.commit(h)
	var crc uint32
	if q.crc {
		crc = iwarp.CRC(0, hdr)
	}
	for i := range ps {
		if q.crc {
			crc = iwarp.CRC(crc, ps[i].mem)
		}
		o.ref(ps[i])
	}
	t := o.reserve(trailer)
	pad := t[:trailer-iwarp.CRCLen]
	clear(pad)
	if q.crc {
		crc = iwarp.CRC(crc, pad)
	}
	iwarp.PutCRC(t[len(pad):], crc)
	o.commit(trailer)
	return true
}

// emitMarked is emit for a peer that wants markers: the FPDU is made elsewhere and
// copied with its markers.
func (q *qp) emitMarked(hdr []byte, ps []piece, n int) bool {
	o := &q.out
	size := len(hdr) + n
	size += -size&3 + iwarp.CRCLen
	if !q.outRoom(q.marker.MaxSize(size), 0) {
		return false
	}
	q.carries(n)
	aside := q.dev.lent.getStage(stageSize)
	f := aside[:size]
	gather(f[copy(f, hdr):], ps)
	iwarp.Seal(f, false) // the pad
	o.commit(q.marker.Put(o.reserve(q.marker.MaxSize(size)), f, q.crc))
	q.dev.lent.putStage(aside)
	return true
}

// flush writes what is pending, up to maxBurst bytes, and makes more as room
// appears. It reports whether bytes moved.
func (q *qp) flush() bool {
	if q.fd < 0 || !q.state.sends() || q.out.job != nil {
		return false
	}
	moved := 0
	for q.state.sends() && q.events&unix.EPOLLOUT == 0 {
		q.generate()
		if !q.state.sends() || q.out.pending == 0 {
			break
		}
		if moved >= maxBurst {
			q.dev.markDirty(q)
			break
		}
		if q.writeAside() {
			break
		}
		n, ok := q.write()
		if !ok {
			return true
		}
		moved += n
	}
	if q.state.sends() {
		q.completeSends()
	}
	if q.out.pending == 0 && q.out.segs != nil {
		q.giveOut()
	}
	return moved > 0
}

// write makes one system call and returns how many bytes of the output are done. It
// returns false if the connection is gone.
func (q *qp) write() (int, bool) {
	q.fill()
	if q.tls != nil {
		return q.writeSealed()
	}
	o, io := &q.out, &q.dev.io
	iovs := 0
	for i := o.sh; i < o.st; i++ {
		io.set(iovs, o.segs[i].mem)
		iovs++
	}
	n, err := io.sendmsg(q.fd, iovs)
	io.forget(iovs)
	if err != nil {
		q.lost(err)
		return 0, false
	}
	q.wrote(n, o.pending)
	o.owes -= n
	return n, true
}

// wrote notes that n of size bytes that were to be written are.
func (q *qp) wrote(n, size int) {
	if n > 0 {
		q.dev.stats.BytesOut += uint64(n)
		q.dev.stats.CallsOut++
		if t := q.tap(); t != nil {
			q.tapOut(t, n)
		}
	}
	if n < size {
		q.interest(q.events | unix.EPOLLOUT)
	}
	q.out.sent(n)
}

func (q *qp) tapOut(t Tap, n int) {
	for i := q.out.sh; n > 0; i++ {
		b := q.out.segs[i].mem
		k := min(n, len(b))
		q.saw(t, true, b[:k])
		n -= k
	}
}
