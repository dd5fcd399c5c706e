package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// mw implements verbs.MW. It keeps one index of the key table. Each bind makes a
// region that lives until the next bind.
type mw struct {
	pd    *pd
	typ   verbs.MWType
	index uint32
	key   uint32 // of the last bind posted
	cur   *mr    // nil: unbound
	gone  bool
}

// AllocMW implements verbs.PD.
func (p *pd) AllocMW(t verbs.MWType) (verbs.MW, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	if t != verbs.MWType1 && t != verbs.MWType2 {
		return nil, fmt.Errorf("soft: memory window of type %d: %w", t, unix.EINVAL)
	}
	unbound := &mr{dead: true}
	if !p.dev.keys.add(unbound, true) {
		return nil, fmt.Errorf("soft: all %d keys in use: %w", maxMRs, unix.ENOMEM)
	}
	p.users++
	return &mw{pd: p, typ: t, index: unbound.key >> 8, key: unbound.key}, nil
}

func (w *mw) Type() verbs.MWType { return w.typ }
func (w *mw) RKey() uint32       { return w.key }

// Dealloc implements verbs.MW.
func (w *mw) Dealloc() error {
	if w.gone {
		return fmt.Errorf("soft: memory window deallocated twice: %w", unix.EINVAL)
	}
	w.unbind()
	w.gone = true
	delete(w.pd.dev.keys.m, w.index)
	w.pd.users--
	return nil
}

// unbind ends the key at once.
func (w *mw) unbind() {
	m := w.cur
	if m == nil {
		return
	}
	w.cur = nil
	m.dead = true
	m.parent.windows--
	m.dev.detach(m)
}

// bindArgs are the arguments of a posted BIND_MW.
type bindArgs struct {
	w            *mw
	m            *mr
	addr, length uint64
	access       verbs.Access
	key          uint32
}

// qpRights are the rights that the Access of a QP may have: those of ibv_qp_attr,
// and the local ones, which have no effect there.
const qpRights = remoteRights | verbs.AccessLocalWrite | verbs.AccessMWBind

const remoteRights = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// bindPosted makes the immediate checks of a BIND_MW.
func (q *qp) bindPosted(b *verbs.BindMW) (bindArgs, error) {
	var x bindArgs
	if b == nil {
		return x, fmt.Errorf("soft: BIND_MW without arguments: %w", unix.EINVAL)
	}
	w, ok := b.MW.(*mw)
	if !ok || w.gone || w.pd.dev != q.dev {
		return x, fmt.Errorf("soft: BIND_MW of no window of this device: %w", unix.EINVAL)
	}
	m, _ := b.MR.(*mr)
	unbind := w.typ == verbs.MWType1 && b.Length == 0
	if !unbind && (m == nil || m.dev != q.dev) {
		return x, fmt.Errorf("soft: BIND_MW to no region of this device: %w", unix.EINVAL)
	}
	if b.Access&^(remoteRights|verbs.AccessZeroBased) != 0 {
		return x, fmt.Errorf("soft: BIND_MW with rights %#x, only remote ones make sense: %w", uint64(b.Access), unix.EINVAL)
	}
	key := b.RKey
	if w.typ == verbs.MWType1 {
		key = w.index<<8 | uint32(uint8(w.key)+1)
	} else if key>>8 != w.index {
		return x, fmt.Errorf("soft: BIND_MW with key %#x, of which only the low 8 bits may differ from %#x: %w", key, w.key, unix.EINVAL)
	}
	w.key = key
	return bindArgs{w: w, m: m, addr: b.Addr, length: b.Length, access: b.Access, key: key}, nil
}

// bind carries out a bind. It returns false if the bind is refused.
func (q *qp) bind(x *bindArgs) bool {
	w, m := x.w, x.m
	if w.gone || w.pd != q.pd {
		return false
	}
	if w.typ == verbs.MWType1 && x.length == 0 {
		w.unbind()
		return true
	}
	const writes = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	switch {
	case m.dead || m.pd != q.pd || m.access&verbs.AccessMWBind == 0,
		x.length == 0 || m.slice(x.addr, x.length) == nil,
		x.access&writes != 0 && m.access&verbs.AccessLocalWrite == 0,
		w.typ == verbs.MWType2 && w.cur != nil:
		return false
	}
	w.unbind()
	m.windows++
	w.cur = &mr{dev: q.dev, pd: w.pd, mem: m.slice(x.addr, x.length), iova: x.addr, access: x.access, key: x.key, parent: m, window: w}
	if x.access&verbs.AccessZeroBased != 0 {
		w.cur.iova = 0
	}
	if w.typ == verbs.MWType2 {
		w.cur.owner = q
	}
	q.dev.keys.m[w.index] = w.cur
	return true
}

// invalidate ends a key for LOCAL_INV or for a SEND_WITH_INV of the peer. If that is
// not allowed, it returns the Terminate code that says why.
func (q *qp) invalidate(stag uint32) iwarp.Code {
	m := q.dev.keys.get(stag)
	switch {
	case m == nil:
		return iwarp.TermInvalidate
	case m.window == nil || m.owner != q: // a region; type 1; another QP's
		return iwarp.TermCantInv
	}
	m.window.unbind()
	return 0
}
