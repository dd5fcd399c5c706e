package conn

import (
	"encoding/binary"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// Atomics of the world, by work request and with their messages.

// add notes that the atomic of s runs at h.
func (s *sent) add(h *worldHost) {
	if s.added++; s.added > 1 || s.applied != s.wrs-1 {
		h.w.fatalf("atomic of message %d ran %d times, after %d of the requests before it", s.id, s.added, s.applied)
	}
}

// apply notes that an RDMA request or an atomic of s has run at h.
func (s *sent) apply(h *worldHost) {
	s.applied++
	s.appLife = h.life
	if s.applied > s.wrs {
		h.w.fatalf("RDMA of message %d ran %d times, it has %d requests", s.id, s.applied, s.wrs)
	}
}

// AimAtomic knows the message by the key, as rdma does.
func (h *worldHost) AimAtomic(_ *Conn, hd *wire.Header, r *wire.Atomic) wire.AtomicStatus {
	s := h.w.byID[uint64(r.RKey)-keyBase]
	switch {
	case s == nil || s.from == h.i || s.key != flow{hd.SPort, hd.DPort}:
		h.w.fatalf("atomic on unknown key %d", r.RKey)
	case h.aimed != nil:
		h.w.fatalf("the atomic of %d was neither run nor let go", h.aimed.id)
	case s.bad:
		return wire.AtomicAccess
	}
	h.aimed = s
	return wire.AtomicDone
}

// oldValue is what the memory of s holds before its atomic.
func (s *sent) oldValue() uint64 { return s.id * 3 }

func (h *worldHost) RunAtomic(_ *Conn, r *wire.Atomic, run bool) uint64 {
	s := h.aimed
	h.aimed = nil
	if s == nil || uint64(r.RKey)-keyBase != s.id {
		h.w.fatalf("the atomic on key %d was not aimed", r.RKey)
	}
	if !run {
		return 0
	}
	if s.done && s.outcome != msg.Cancelled && s.outcome != msg.Unknown && s.outcome != msg.GaveUp {
		h.w.fatalf("atomic of message %d ran after it ended with outcome %v", s.id, s.outcome)
	}
	h.w.logf("%d: atomic of %d", h.i, s.id)
	h.w.saw["carried"]++
	s.add(h)
	s.apply(h)
	return s.oldValue()
}

func (h *worldHost) AtomicResult(_ *Conn, m *msg.Msg, old uint64) {
	s := m.Owner.(*sent)
	if s.results++; s.results > 1 || s.done || s.added != 1 || old != s.oldValue() {
		h.w.fatalf("result %d of message %d, the %dth: ran %d times, done %v", old, s.id, s.results, s.added, s.done)
	}
	binary.NativeEndian.PutUint64(s.buf, old)
}

// waits says whether l has a message for which is is true.
func (w *world) waits(l *msg.List, is func(*msg.Msg) bool) bool {
	for m := l.Head; m != nil; m = m.Track.Next {
		if is(m) {
			return true
		}
	}
	return false
}
