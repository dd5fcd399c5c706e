package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/rdmaop"
)

// mostOp bounds the state of an operation.
const mostOp = 1 << 10

// handOverOps has the operations of t go over, and how one of them is cut.
func (x *crossing) handOverOps(t *txMsg, st *txState) {
	s := x.s
	n := s.Count(t.nops, len(t.opv), 4+4+8+1+8)
	for i := range n {
		if s.Reads() {
			t.opv[i] = x.pools.ops.Get()
			t.opv[i].Reset()
			t.nops++
		}
		if x.handOverOp(t, t.opv[i], st); s.Reads() && s.Err() != nil {
			return
		}
	}
	switch {
	case !s.Reads():
	case n > 0 && t.notify && !st.done:
		s.Fail("a message with %d operations asks for a status", n)
		return
	case n > 0:
		t.m.Op = &t.opv[0].Op
		if n > 1 {
			t.m.Op2 = &t.opv[1].Op
		}
	case t.m.Silent || st.uses || st.long || st.done:
		s.Fail("a message without operations is silent %v, uses a region %v, is long %v, done %v", t.m.Silent, st.uses, st.long, st.done)
		return
	}
	if st.long {
		x.handOverLong(t, st)
	}
}

// handOverOp has an operation of t go over with its local memory.
func (x *crossing) handOverOp(t *txMsg, o *txOp, st *txState) {
	s, c := x.s, t.sock.cl
	s.Refuse(s.Inner(mostOp, o.Encode, o.Adopt))
	for i := range s.Count(len(o.Segs), abi.MaxSegs, 4+8+4) {
		g, id := handover.Nth(s, o.Segs, i), uint32(0)
		if !s.Reads() {
			id = o.bufs[i].id
		}
		s.U32(&id)
		s.U64(&g.Addr)
		if s.U32(&g.Len); !s.Reads() {
			continue
		}
		b := c.buffers[id]
		if b == nil || g.Len == 0 || !b.has(g.Addr, uint64(g.Len)) || c.segs >= maxSegs {
			s.Fail("a segment of %d bytes at %d in buffer %d", g.Len, g.Addr, id)
			return
		}
		x.users.useSegment(c, o, b, g.Addr, g.Len)
	}
	s.U64(&o.copied)
	s.Bool(&o.tell)
	if s.I64(&o.at); !s.Reads() || s.Err() != nil {
		return
	}
	pending := o.State() == rdmaop.StateQueued || o.State() == rdmaop.StatePosted || o.State() == rdmaop.StateTold
	switch {
	case o.State() == rdmaop.StateNew, pending && st.done, o.copied > o.Len, !st.done && (o.Validate() != 0 || o.Len > abi.MaxTransfer):
		s.Fail("an operation in state %v of which %d of %d bytes were copied", o.State(), o.copied, o.Len)
		return
	}
	if pending {
		if err := t.slot.cell.mark.Again(&o.place, o.ID); err != nil {
			s.Fail("%v", err)
			return
		}
	}
	if g := x.keys.by[o.RKey()]; st.uses && g != nil && g.rights&abi.UseOnce != 0 && !st.done {
		if g.user != nil && g.user != t {
			s.Fail("region %#x is used by two messages", g.id)
		}
		g.user = t
	}
}

// handOverLong has the cutting of t's operation go over. What a piece is of it goes over as a
// range.
func (x *crossing) handOverLong(t *txMsg, st *txState) {
	s, l, o := x.s, t.long, t.opv[0]
	if s.Reads() {
		l = x.pools.longs.Get()
		t.long = l
	}
	done, last, carries := l.at, l.last.Len, t.m.Op == &l.last
	s.U64(&done)
	s.U64(&last)
	s.Bool(&carries)
	s.Bool(&l.over)
	s.Bool(&l.ended)
	s.U8((*uint8)(&l.outcome))
	at := l.pieces.Head
	n := s.Count(l.pieces.N, maxPieces, 8+8+4)
	switch {
	case !s.Reads():
	case s.Err() != nil:
		return
	case o.Kind.Atomic(), st.done, t.slot.closed && t.sock.closed, carries && (done != o.Len || last == 0 || last > done), !carries && last != 0,
		done > o.Len || done == 0, t.handed != carries, l.ended && n == 0, l.ended && !l.over, l.outcome > msg.GaveUp:
		s.Fail("an operation of %d bytes of which %d were handed over", o.Len, done)
		return
	}
	for range n {
		var from, size uint64
		var dst uint32
		if !s.Reads() {
			from, size, dst = at.Of.op.RemoteOff-o.RemoteOff, at.Of.op.Len, at.Of.m.DstInc
			at = at.Next
		}
		s.U64(&from)
		s.U64(&size)
		if s.U32(&dst); s.Reads() && !x.pieceAgain(t, done, from, size, dst) {
			return
		}
	}
	if !s.Reads() {
		return
	}
	if carries {
		l.seek(o, done-last)
		l.cut(o, &l.last, last)
		t.m.Op = &l.last
	}
	l.seek(o, done)
}

// pieceAgain makes a piece of t's operation, of which done bytes were handed over. It returns false after
// an error.
func (x *crossing) pieceAgain(t *txMsg, done, from, size uint64, dst uint32) bool {
	l, o := t.long, t.opv[0]
	if x.s.Err() != nil {
		return false
	}
	if size == 0 || from > done || size > done-from {
		x.s.Fail("a piece of %d bytes at %d of an operation of %d", size, from, o.Len)
		return false
	}
	l.seek(o, from)
	x.tx.newPiece(t, size, dst)
	return true
}

// seek has the next piece of o begin at its byte at.
func (l *long) seek(o *txOp, at uint64) {
	l.at, l.seg, l.off = at, 0, 0
	for l.seg < len(o.Segs) && at >= uint64(o.Segs[l.seg].Len) {
		at -= uint64(o.Segs[l.seg].Len)
		l.seg++
	}
	l.off = uint32(at)
}
