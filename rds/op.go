package rds

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
)

// opKey names an operation within a client, or a message, whose id is its message id.
type opKey struct {
	cell uint32
	id   uint64
	msg  bool
}

// awaitedOp is an operation, or a message, that asked for its status, which has not come.
type awaitedOp struct {
	token  uint64
	notify bool // its status will come; otherwise only if it is not Success
	wanted bool // somebody takes it
	msg    uint32
}

// cellRef is what the ids of a cell in shared memory mean.
type cellRef struct {
	addr netip.Addr
	base uint64 // is added to them
}

// checkExtras checks what m has besides a payload. mu is held.
func (t *tx) checkExtras(s *Socket, m *Message) error {
	settles := 0
	if m.Notify {
		if err := t.checkNotify(m); err != nil {
			return err
		}
		settles++
	}
	if m.From.Buf != nil || m.From.Len != 0 {
		if err := t.checkFrom(m); err != nil {
			return err
		}
	}
	if op := m.Op; op != nil {
		if err := t.checkOp(op); err != nil {
			return err
		}
		if op.Notify || op.Report {
			settles++
		}
	}
	if a := m.Atomic; a != nil {
		if err := t.checkAtomic(a); err != nil {
			return err
		}
		if a.Notify || a.Report {
			settles++
		}
	}
	if m.Traceparent != "" {
		if err := m.checkTraceparent(); err != nil {
			return err
		}
	}
	switch {
	case m.Cookie != 0 && (m.Op != nil || m.Atomic != nil):
		return invalid("a message carries either a cookie or operations")
	case m.Cookie != 0 && !t.c.regions.knows(m.Cookie):
		return invalid("cookie %#x is not of a region of this client", uint64(m.Cookie))
	case m.GiveUpAfter < 0 || m.GiveUpAfter > maxGiveUp:
		return invalid("give up after %v", m.GiveUpAfter)
	case settles > 0 && !t.roomToSettle(s, settles), m.ZeroCopy && s.zcOpen >= len(t.msgs):
		return ErrCompletionsFull
	}
	return nil
}

// checkOp checks what the client can check of an operation. The daemon checks the
// rest, and its result is a status. mu is held.
func (t *tx) checkOp(op *RDMA) error {
	switch {
	case op.Cookie == 0:
		return invalid("operation without a remote cookie")
	case len(op.Local) == 0:
		return invalid("operation without local memory")
	case len(op.Local) > abi.MaxSegs:
		return tooLong("operation of %d segments, at most %d", len(op.Local), abi.MaxSegs)
	}
	total := 0
	for i := range op.Local {
		g := &op.Local[i]
		if err := t.checkSegment(g, 1); err != nil {
			return fmt.Errorf("segment %d: %w", i, err)
		}
		if g.Len > abi.MaxTransfer-total {
			return tooLong("segment %d has %d bytes and those before it %d, an operation at most %d: use several operations", i, g.Len, total, abi.MaxTransfer)
		}
		total += g.Len
	}
	return nil
}

// checkSegment checks that g is memory of this client with at least least bytes. mu
// is held.
func (t *tx) checkSegment(g *Segment, least int) error {
	switch {
	case g.Buf == nil || g.Buf.c != t.c:
		return invalid("not in a buffer of this client")
	case g.Buf.freed:
		return invalid("its buffer was freed")
	case g.Len < least || g.Off < 0 || g.Off > len(g.Buf.mem) || g.Len > len(g.Buf.mem)-g.Off:
		return invalid("%d bytes at %d of a buffer of %d", g.Len, g.Off, len(g.Buf.mem))
	}
	return nil
}

// roomToSettle reports whether the completion queue of s has room for n more
// completions. Returned messages give back their places, so they are taken in first
// if there is none.
func (t *tx) roomToSettle(s *Socket, n int) bool {
	room := func() bool { return int(s.promised.Load()+s.queuedComps.Load())+n <= len(t.msgs) }
	return room() || t.reap() && room()
}

// listSize returns the size of the segment list of m's operation; 0 if it has none.
// A single segment is in the descriptor.
func (m *Message) listSize() int {
	if m.Op == nil || len(m.Op.Local) < 2 {
		return 0
	}
	return len(m.Op.Local) * shm.SegEntrySize
}

// opMemory returns how much memory of the send arena m's operations take: the
// segment list, and behind it, at a multiple of shm.Unit, the operands of the
// atomic.
func (m *Message) opMemory() int {
	n := m.listSize()
	if m.Atomic != nil {
		n = units(n)*shm.Unit + shm.AtomicEntrySize
	}
	return n
}

func units(n int) int { return (n + shm.Unit - 1) / shm.Unit }

// putOpMemory writes the memory of opMemory into b.
func (m *Message) putOpMemory(b []byte) {
	if m.listSize() > 0 {
		for i := range m.Op.Local {
			g := &m.Op.Local[i]
			shm.PutSegEntry(b[i*shm.SegEntrySize:], shm.SegEntry{Region: g.Buf.id, Off: uint64(g.Off), Len: uint64(g.Len)})
		}
	}
	if m.Atomic != nil {
		shm.PutAtomicEntry(b[units(m.listSize())*shm.Unit:], m.Atomic.operands())
	}
}

// commitExtras completes the descriptor of m and writes those of its operations
// behind it. It assigns the operations' ids, in the order of the ring. mu is held.
func (t *tx) commitExtras(s *Socket, m *outMsg, x *txMsg, sub *shm.Sub) {
	e := m.x
	sub.Cookie, sub.GiveUp, sub.DstInc = uint64(e.Cookie), giveUpMs(e.GiveUpAfter), e.DstInc
	if e.From.Buf != nil && x.sum.Bytes > 0 {
		sub.Flags |= shm.SubFromBuf
		sub.Buf, sub.Off = e.From.Buf.id, uint64(e.From.Off)
	}
	if e.ZeroCopy {
		x.zc, x.zcCookie = true, e.ZeroCopyCookie
		s.zcOpen++
	}
	if e.Op != nil || e.Atomic != nil {
		sub.Kind = shm.KindSendOp
	}
	if e.Op != nil && e.Atomic != nil {
		sub.Flags |= shm.SubTwoOps
	}
	if e.tail() > 0 {
		sub.Flags |= shm.SubTraceparent
	}
	ce := m.dest.cell
	if e.Notify {
		sub.Flags |= shm.SubNotify
		t.promiseOutcome(s, ce, m.id, e.Token)
	}
	if op := e.Op; op != nil {
		e.OpID = t.commitRDMA(ce, op, x.opMem)
		t.promise(s, ce, m.id, op.Token, op.Notify, op.Report)
	}
	if a := e.Atomic; a != nil {
		e.AtomicID = t.commitAtomic(ce, a, x.opMem+uint32(units(e.listSize())))
		t.promise(s, ce, m.id, a.Token, a.Notify, a.Report)
	}
}

func (t *tx) commitRDMA(ce *cell, op *RDMA, list uint32) (id uint64) {
	ce.last++
	d := t.sub.Reserve().SubOp()
	*d = shm.SubOp{Op: abi.OpRead, Flags: opFlags(op.Notify, op.Report, op.Silent, op.OwnerOnly), NSeg: uint16(len(op.Local)),
		Cookie: uint64(op.Cookie), RemoteOff: op.RemoteOff, Token: op.Token, OpID: ce.last - ce.base}
	if op.Write {
		d.Op = abi.OpWrite
	}
	for i := range op.Local {
		d.Len += uint64(op.Local[i].Len)
	}
	if len(op.Local) == 1 {
		d.Region, d.Off = op.Local[0].Buf.id, uint64(op.Local[0].Off)
	} else {
		d.SegChunk = list
	}
	return ce.last
}

func (t *tx) commitAtomic(ce *cell, a *Atomic, operands uint32) (id uint64) {
	ce.last++
	*t.sub.Reserve().SubOp() = shm.SubOp{Op: a.kind(), Flags: opFlags(a.Notify, a.Report, a.Silent, false), NSeg: 1,
		Region: a.Local.Buf.id, Off: uint64(a.Local.Off), Len: atomicSize, SegChunk: operands,
		Cookie: uint64(a.Cookie), RemoteOff: a.RemoteOff, Token: a.Token, OpID: ce.last - ce.base}
	return ce.last
}

func opFlags(notify, report, silent, owner bool) (f abi.OpFlags) {
	if owner {
		f |= abi.FlagOwner
	}
	if silent {
		f |= abi.FlagSilent
	}
	if report {
		f |= abi.FlagReport
	}
	if notify {
		f |= abi.FlagNotify
	}
	return f
}

// promise reserves a place for the status of the operation that was just submitted,
// if the operation asked for its status.
func (t *tx) promise(s *Socket, ce *cell, id uint32, token uint64, notify, report bool) {
	if !notify && !report {
		return
	}
	x := &t.msgs[id]
	if !notify && t.asked != nil {
		t.asked[id][x.settles] = ce.last
	}
	x.settles++
	s.promised.Add(1)
	t.c.rx.promise(s, opKey{cell: ce.idx, id: ce.last}, ce, awaitedOp{token: token, notify: notify, wanted: true, msg: id})
}

// Completions moves the statuses of settled operations into dst, in the order in
// which they were settled. It returns how many it moved and never blocks.
func (s *Socket) Completions(dst []Completion) int {
	r := &s.c.rx
	if s.c.wait.returns.Load() > 0 {
		s.c.tx.poll()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeEvents()
	n := s.comps.move(dst)
	s.queuedComps.Add(int32(-n))
	s.taken()
	return n
}

// Notices moves the notices that are queued into dst, returns how many it moved, and
// never blocks.
func (s *Socket) Notices(dst []Notice) int {
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeEvents()
	defer s.taken()
	return s.notices.move(dst)
}

// maxNotices bounds a socket's queue of notices. Beyond it, messages are counted
// in one Notice of each kind without address, and news of peers is dropped.
const maxNotices = 1024

// addNotice queues n. If a notice of the same kind and destination is queued, n is
// added to it. rx.mu is held.
func (s *Socket) addNotice(n Notice) {
	counts := n.Kind.Unwrap() != nil
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
