package sim

import (
	"fmt"

	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// MW implements verbs.MW. It holds one key slot; each bind makes an MR of its
// own there.
type MW struct {
	pd   *PD
	typ  verbs.MWType
	slot int
	key  uint32
	cur  *MR
	gone bool
}

// AllocMW implements verbs.PD.
func (pd *PD) AllocMW(t verbs.MWType) (verbs.MW, error) {
	if err := pd.usable("AllocMW"); err != nil {
		return nil, err
	}
	if pd.dev.attr.Caps&verbs.CapMW == 0 {
		return nil, fmt.Errorf("sim: AllocMW: no memory windows: %w", unix.EOPNOTSUPP)
	}
	if t != verbs.MWType1 && t != verbs.MWType2 {
		return nil, pd.dev.invalid("AllocMW", fmt.Sprintf("type %d", t))
	}
	unbound := &MR{pd: pd, gone: true}
	if !pd.dev.addRegion(unbound, true) {
		return nil, fmt.Errorf("sim: AllocMW: no key free: %w", unix.ENOMEM)
	}
	pd.uses++
	return &MW{pd: pd, typ: t, slot: unbound.slot, key: unbound.rkey}, nil
}

// Type implements verbs.MW.
func (w *MW) Type() verbs.MWType { return w.typ }

// RKey implements verbs.MW.
func (w *MW) RKey() uint32 { return w.key }

// Dealloc implements verbs.MW.
func (w *MW) Dealloc() error {
	d := w.pd.dev
	if d.dead {
		return nil
	}
	if w.gone {
		return d.invalid("Dealloc", "memory window already deallocated")
	}
	w.unbind()
	w.gone = true
	w.pd.uses--
	d.freeSlots = append(d.freeSlots, w.slot)
	return nil
}

func (w *MW) unbind() {
	if m := w.cur; m != nil {
		w.cur = nil
		m.gone, m.mem = true, nil
		m.parent.windows--
	}
}

// bindArgs are the arguments of a posted BIND_MW.
type bindArgs struct {
	verbs.BindMW
	w *MW
	m *MR
}

// qpRights are the rights that the Access of a QP may have: those of ibv_qp_attr,
// and the local ones, which have no effect there.
const qpRights = remoteRights | verbs.AccessLocalWrite | verbs.AccessMWBind

const remoteRights = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// bindPosted makes the immediate checks of a BIND_MW.
func (q *QP) bindPosted(b *verbs.BindMW) (*bindArgs, bool) {
	if b == nil {
		return nil, false
	}
	x := &bindArgs{BindMW: *b}
	x.w, _ = b.MW.(*MW)
	x.m, _ = b.MR.(*MR)
	switch {
	case x.w == nil || x.w.gone || x.w.pd.dev != q.dev,
		!(x.w.typ == verbs.MWType1 && b.Length == 0) && (x.m == nil || x.m.pd.dev != q.dev),
		b.Access&^(remoteRights|verbs.AccessZeroBased) != 0:
		return nil, false
	case x.w.typ == verbs.MWType1:
		x.RKey = verbs.IncRKey(x.w.key)
	case b.RKey>>8 != x.w.key>>8:
		return nil, false
	}
	x.w.key = x.RKey
	return x, true
}

// bind carries out a bind. It returns false if the bind is refused.
func (q *QP) bind(x *bindArgs) bool {
	w, m := x.w, x.m
	if w.gone || w.pd != q.pd {
		return false
	}
	if w.typ == verbs.MWType1 && x.Length == 0 {
		w.unbind()
		return true
	}
	const writes = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if m.gone || m.pd != q.pd || m.access&verbs.AccessMWBind == 0 || x.Length == 0 || x.Length >= 1<<32 ||
		x.Access&writes != 0 && m.access&verbs.AccessLocalWrite == 0 || w.typ == verbs.MWType2 && w.cur != nil {
		return false
	}
	mem := m.slice(x.Addr, uint32(x.Length))
	if mem == nil {
		return false
	}
	w.unbind()
	m.windows++
	w.cur = &MR{pd: w.pd, mem: mem, iova: x.Addr, access: x.Access, rkey: x.RKey, slot: w.slot, gen: uint8(x.RKey), parent: m, window: w}
	if x.Access&verbs.AccessZeroBased != 0 {
		w.cur.iova = 0
	}
	if w.typ == verbs.MWType2 {
		w.cur.owner = q
	}
	q.dev.regions[w.slot] = w.cur
	return true
}

// invalidate ends a key for LOCAL_INV or SEND_WITH_INV. It returns false if that is
// not allowed.
func (q *QP) invalidate(rkey uint32) bool {
	m := q.dev.region(rkey)
	if m == nil || m.rkey != rkey || m.window == nil || m.owner != q {
		return false
	}
	m.window.unbind()
	return true
}
