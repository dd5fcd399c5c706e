package engine

import (
	"encoding/binary"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/word"
	"github.com/rdsd/rdsd/rdmaop"
)

// Between two rdsd the message of an atomic carries it. The daemon that accepts the message
// carries the atomic out, see conn. So this daemon checks what the device checks for others:
// key, grant, rights, bounds, alignment.

// aim is the atomic that is about to run.
type aim struct {
	buf    *buffer // kept, though its region may end with the message
	target []byte
	op     rdmaop.Op
}

// AimAtomic is the connection's question whether a peer's atomic may run.
func (u *qpHost) AimAtomic(_ *conn.Conn, h *wire.Header, a *wire.Atomic) wire.AtomicStatus {
	e, p := u.e, u.p
	r := e.keys.by[a.RKey]
	if r == nil || r.number != a.Region || !r.servesAtomics(p) {
		if h.Flags&wire.FlagSilent == 0 && (h.DPort != 0 || e.cfg.IgnorePings) && e.dests.meant(p.local, h.DPort, h.DstInc) == nil {
			return wire.AtomicNobody // the region went with its socket
		}
		return wire.AtomicAccess
	}
	off := a.Addr - r.cookie>>32 // wraps around below the region, and is beyond its end then
	if r.n < 8 || off > r.n-8 {
		return wire.AtomicAccess
	}
	target := r.buf.mem[r.off+off:][:8]
	if a.Addr%8 != 0 || !word.Is(target) {
		return wire.AtomicAlign
	}
	r.buf.users++
	e.aim.buf, e.aim.target = r.buf, target
	return wire.AtomicDone
}

// servesAtomics reports whether p may run atomics on r: it has been granted r and has not
// given it back. While r is being taken back, what p has sent before it answers still runs;
// but of a region for one use the first message is the use.
func (r *region) servesAtomics(p *peer) bool {
	if r.rights&abi.RightAtomic == 0 || r.sock.local != p.local || p.stale() {
		return false
	}
	if r.rights&abi.UseOnce != 0 && (r.spent || r.exp.State() != rdmaop.ExportLive) {
		return false
	}
	i, ok := r.find(p.remote)
	return ok && !r.grantees[i].of.void
}

// RunAtomic carries out, or lets go of, what AimAtomic has aimed at.
func (u *qpHost) RunAtomic(_ *conn.Conn, a *wire.Atomic, run bool) (old uint64) {
	e := u.e
	if run {
		e.aim.op.FromRequest(a)
		old = word.RunNow(&e.aim.op, e.aim.target)
	}
	b := e.aim.buf
	e.aim.buf, e.aim.target = nil, nil
	b.users--
	e.keys.maybeFreeBuffer(b)
	return old
}

// AtomicResult is the connection's up-call for the answer to the atomic that m carries.
func (u *qpHost) AtomicResult(_ *conn.Conn, m *msg.Msg, old uint64) {
	t := m.Owner.(*txMsg)
	for _, o := range t.ops() {
		if t.carries(o) {
			binary.NativeEndian.PutUint64(o.bufs[0].mem[o.Segs[0].Addr:], old)
		}
	}
}

// carries reports whether o is an atomic that its message t carries.
func (t *txMsg) carries(o *txOp) bool { return t.m.Carried() && o.Kind.Atomic() }

// atomicLocal notes that the atomic which t carries is locally complete, now that t has
// ended: no result will be written any more.
func (tx *sender) atomicLocal(t *txMsg) {
	for _, o := range t.ops() {
		if s := o.State(); t.carries(o) && (s == rdmaop.StatePosted || s == rdmaop.StateTold) {
			tx.stepOp(t, o, rdmaop.Event{Type: rdmaop.EvLocal})
		}
	}
}
