package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/rdmaop"
)

// mostOp bounds the state of an operation.
const mostOp = 1 << 10

func (h *handing) encodeOp(o *txOp) {
	w := h.w
	state, err := o.Encode(w.Version())
	h.fail(err)
	w.Blob(state)
	w.Count(len(o.Segs))
	for i, s := range o.Segs {
		w.U32(o.bufs[i].id)
		w.U64(s.Addr)
		w.U32(s.Len)
	}
	copied := o.copied
	if mutant.On(mutant.HandoverCopied) {
		copied = 0
	}
	w.U64(copied)
	w.Bool(o.tell && !mutant.On(mutant.HandoverStatus))
	w.I64(o.at)
}

// adoptOps reads the operations of x, whose record has the flags f.
func (t *taking) adoptOps(x *txMsg, f uint16) {
	r := t.r
	r.Begin(handover.TagOperations)
	n := r.Count(len(x.opv), 4+4+8+1+8)
	for range n {
		o := t.pools.ops.Get()
		o.Reset()
		if err := o.Adopt(r.Blob(mostOp)); err != nil {
			r.Fail("%v", err)
		}
		x.opv[x.nops] = o
		x.nops++
		t.adoptSegments(x, o)
		o.copied, o.tell, o.at = r.U64(), r.Bool(), r.I64()
		if r.Err() != nil {
			return
		}
		pending := o.State() == rdmaop.StateQueued || o.State() == rdmaop.StatePosted || o.State() == rdmaop.StateTold
		switch {
		case o.State() == rdmaop.StateNew, pending && x.done, o.copied > o.Len, !x.done && (o.Validate() != 0 || o.Len > abi.MaxTransfer):
			r.Fail("an operation in state %v of which %d of %d bytes were copied", o.State(), o.copied, o.Len)
			return
		}
		if pending {
			if err := x.slot.cell.mark.Again(&o.place, o.ID); err != nil {
				r.Fail("%v", err)
				return
			}
		}
		if g := t.keys.by[o.RKey()]; f&txUses != 0 && g != nil && g.rights&abi.UseOnce != 0 && !x.done {
			if g.user != nil && g.user != x {
				r.Fail("region %#x is used by two messages", g.id)
			}
			g.user = x
		}
	}
	if n > 0 {
		x.cell = x.slot.cell
		x.m.Op = &x.opv[0].Op
		if n > 1 {
			x.m.Op2 = &x.opv[1].Op
		}
	} else if f&(txSilent|txUses|txLong|txDone) != 0 {
		r.Fail("a message without operations has flags %#x", f)
	}
	if f&txLong != 0 && r.Err() == nil {
		t.adoptLong(x)
	}
	r.End()
}

// adoptSegments finds the local memory of o again.
func (t *taking) adoptSegments(x *txMsg, o *txOp) {
	r, c := t.r, x.cl
	for range r.Count(abi.MaxSegs, 4+8+4) {
		id, s := r.U32(), rdmaop.Seg{Addr: r.U64(), Len: r.U32()}
		b := c.buffers[id]
		if r.Err() != nil {
			return
		}
		if b == nil || s.Len == 0 || s.Addr > uint64(len(b.mem)) || uint64(s.Len) > uint64(len(b.mem))-s.Addr || c.segs >= maxSegs {
			r.Fail("a segment of %d bytes at %d in buffer %d", s.Len, s.Addr, id)
			return
		}
		s.LKey = b.mr.LKey()
		o.Segs, o.bufs = append(o.Segs, s), append(o.bufs, b)
		b.users++
		c.segs++
	}
}

// encodeLong writes the cutting of t's operation. What a piece is of it is written as a
// range.
func (h *handing) encodeLong(t *txMsg) {
	w, l := h.w, t.long
	w.U64(l.at)
	w.U64(l.last.Len)
	w.Bool(t.m.Op == &l.last)
	w.Bool(l.over)
	w.Bool(l.ended)
	w.U8(uint8(l.outcome))
	w.Count(l.pieces.N)
	for at := l.pieces.Head; at != nil; at = at.Next {
		pc := at.Of
		w.U64(pc.op.RemoteOff - t.opv[0].RemoteOff)
		w.U64(pc.op.Len)
		w.U32(pc.m.DstInc)
	}
}

func (t *taking) adoptLong(x *txMsg) {
	r, o := t.r, x.opv[0]
	l := t.pools.longs.Get()
	x.long = l
	done, last, carries := r.U64(), r.U64(), r.Bool()
	l.over, l.ended, l.outcome = r.Bool(), r.Bool(), conn.Outcome(r.U8())
	n := r.Count(maxPieces, 8+8+4)
	switch {
	case r.Err() != nil:
		return
	case o.Kind.Atomic(), x.done, x.slot.closed && x.sock.closed, carries && (done != o.Len || last == 0 || last > done), !carries && last != 0,
		done > o.Len || done == 0, x.handed != carries, l.ended && n == 0, l.ended && !l.over, l.outcome > conn.GaveUp:
		r.Fail("an operation of %d bytes of which %d were handed over", o.Len, done)
		return
	}
	for range n {
		from, size, dst := r.U64(), r.U64(), r.U32()
		if r.Err() != nil {
			return
		}
		if size == 0 || from > done || size > done-from {
			r.Fail("a piece of %d bytes at %d of an operation of %d", size, from, o.Len)
			return
		}
		pc := t.pools.pieces.Get()
		l.seek(o, from)
		l.cut(o, &pc.op, size)
		pc.t = x
		pc.m = conn.Msg{Owner: pc, SPort: x.m.SPort, DPort: x.m.DPort, SrcInc: x.m.SrcInc, DstInc: dst, Op: &pc.op, Silent: true, At: x.m.At}
		l.pieces.Add(&pc.in, pc)
		x.slot.pieces++
	}
	if carries {
		l.seek(o, done-last)
		l.cut(o, &l.last, last)
		x.m.Op = &l.last
	}
	l.seek(o, done)
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
