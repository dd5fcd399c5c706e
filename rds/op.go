package rds

import (
	"net/netip"

	"github.com/rdsd/rdsd/internal/shm"
)

// opKey names an operation within a client.
type opKey struct {
	cell uint32
	id   uint64
}

// checkExtras checks a message's cookie or operation. mu is held.
func (t *tx) checkExtras(s *Socket, m *outMsg) error {
	if m.cookie != 0 {
		if m.op != nil {
			return invalid("a message carries either a cookie or an operation")
		}
		if !t.c.regions.knows(m.cookie) {
			return invalid("cookie %#x is not of a region of this client", uint64(m.cookie))
		}
		return nil
	}
	return t.checkOp(s, m.op)
}

// checkOp checks what can be checked here; the rest is the daemon's and ends
// in a status. mu is held.
func (t *tx) checkOp(s *Socket, op *RDMA) error {
	switch {
	case op.Kind != Read && op.Kind != Write:
		return invalid("operation kind %d is neither Read nor Write", op.Kind)
	case op.Cookie == 0:
		return invalid("operation without a remote cookie")
	case len(op.Local) == 0:
		return invalid("operation without local memory")
	case len(op.Local) > shm.SegListMax:
		return tooLong("operation of %d segments, at most %d", len(op.Local), shm.SegListMax)
	}
	total := 0
	for i := range op.Local {
		g := &op.Local[i]
		switch {
		case g.Buf == nil || g.Buf.c != t.c:
			return invalid("segment %d: not in a buffer of this client", i)
		case g.Buf.freed:
			return invalid("segment %d: its buffer was freed", i)
		case g.Len <= 0 || g.Off < 0 || g.Off > len(g.Buf.mem) || g.Len > len(g.Buf.mem)-g.Off:
			return invalid("segment %d: %d bytes at %d of a buffer of %d", i, g.Len, g.Off, len(g.Buf.mem))
		case g.Len > MaxRDMA-total:
			return tooLong("operation of more than %d bytes", MaxRDMA)
		}
		total += g.Len
	}
	if (op.Notify || op.Report) && !t.roomToSettle(s) {
		return ErrCompletionsFull
	}
	return nil
}

// roomToSettle reports whether one more completion can be promised. A promise
// is taken back with its message, so those are looked at first.
func (t *tx) roomToSettle(s *Socket) bool {
	room := func() bool { return int(s.promised.Load()+s.queuedComps.Load()) < len(t.msgs) }
	return room() || t.reap() && room()
}

// commitOp writes the operation's descriptor behind its message's. Its id is
// assigned here, in the order of the ring. mu is held.
func (t *tx) commitOp(s *Socket, m *outMsg, x *txMsg) {
	op, ce := m.op, m.dest.cell
	ce.last++
	m.opID = ce.last
	d := t.sub.Reserve().SubOp()
	*d = shm.SubOp{Op: uint8(op.Kind), NSeg: uint16(len(op.Local)), Cookie: uint64(op.Cookie), RemoteOff: op.RemoteOff,
		Token: op.Token, OpID: ce.last, SegChunk: x.segs}
	for i := range op.Local {
		d.Len += uint64(op.Local[i].Len)
	}
	if len(op.Local) == 1 {
		d.Region, d.Off = op.Local[0].Buf.id, uint64(op.Local[0].Off)
	}
	if op.Silent {
		d.Flags |= shm.OpSilent
	}
	if op.Report {
		d.Flags |= shm.OpReport
	}
	if op.Notify {
		d.Flags |= shm.OpNotify
	}
	if op.Notify || op.Report {
		x.settles = true
		s.promised.Add(1)
		t.c.rx.promise(s, opKey{ce.idx, ce.last}, ce.addr, op.Notify)
	}
}

// Completions moves settled operations' statuses into dst, in the order they
// were settled, and returns how many. It never blocks.
func (s *Socket) Completions(dst []Completion) int {
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	n := 0
	for ; n < len(dst) && s.comps.len() > 0; n++ {
		dst[n] = s.comps.pop()
	}
	s.queuedComps.Add(int32(-n))
	return n
}

// Notices moves what is to be told about destinations into dst and returns how
// many. It never blocks.
func (s *Socket) Notices(dst []Notice) int {
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	n := 0
	for ; n < len(dst) && s.notices.len() > 0; n++ {
		dst[n] = s.notices.pop()
	}
	return n
}

// maxNotices bounds a socket's queue of notices. Beyond it, lost and undeliverable
// messages are counted in one Notice without address, and news of peers is
// dropped.
const maxNotices = 1024

// addNotice queues n, folding it into an earlier one of the same kind and
// destination if there is one. rx.mu is held.
func (s *Socket) addNotice(n Notice) {
	counts := n.Kind == Lost || n.Kind == NoSocket
	if counts && s.foldNotice(n) {
		return
	}
	if s.notices.len() >= maxNotices {
		if !counts {
			return
		}
		n.To = netip.AddrPort{}
		if s.foldNotice(n) {
			return
		}
	}
	s.notices.push(n)
}

func (s *Socket) foldNotice(n Notice) bool {
	for i := range s.notices.len() {
		q := s.notices.at(i)
		if q.Kind == n.Kind && q.To == n.To {
			q.Count += n.Count
			return true
		}
	}
	return false
}
