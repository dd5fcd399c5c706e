package rds

import (
	"context"
	"net/netip"
)

// HWM returns the high-water mark of the operations that this socket has sent to the
// host to: the highest barrier id N such that the operations 1 to N are all locally
// complete, so that their local memory is the caller's again. It says nothing about
// their success. It is 0 if no operation was sent there. It never falls, and stays
// what it was when the socket, its client or the daemon has ended. It never blocks.
//
// Ids count per (socket, destination address), over all ports. If the status of an
// operation is known when the mark passes it, Completions can return it before.
func (s *Socket) HWM(to netip.Addr) uint64 {
	hwm, behind := s.mark(to)
	if behind {
		// The daemon holds the mark back while it has a status and no room for
		// it: a caller that looks at nothing else must make that room.
		s.c.rx.poll()
		hwm, _ = s.mark(to)
	}
	return hwm
}

// mark returns the high-water mark, and whether operations were issued beyond
// it.
func (s *Socket) mark(to netip.Addr) (hwm uint64, behind bool) {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	ce := s.cells[to.Unmap()]
	if ce == nil {
		return 0, false
	}
	hwm = ce.hwm()
	return hwm, hwm != ce.last && !t.dead
}

// Barrier waits until the operation id to the host to, and all operations before it,
// are locally complete. It returns the high-water mark. Id 0 waits for nothing.
//
// Errors: ErrInvalid for an id that was not issued; the context's; ErrClosed,
// ErrDaemonGone, ErrSession. After an error the buffers of operations above the mark
// must be treated as in use.
//
// Source: the barrier of the first RDS design (rds_barrier_args, 2007), which
// Linux does not have any more.
func (s *Socket) Barrier(ctx context.Context, to netip.Addr, id uint64) (hwm uint64, err error) {
	to = to.Unmap()
	err = s.waitUntil(ctx, wantBarrier, func(arm bool) (bool, error) {
		var ok bool
		hwm, ok, err = s.barrierTry(to, id, arm)
		return ok, err
	})
	return hwm, opErr("barrier", netip.AddrPortFrom(to, 0), err)
}

// barrierTry reports whether the mark has reached id. With arm it asks the daemon to
// announce that.
func (s *Socket) barrierTry(to netip.Addr, id uint64, arm bool) (uint64, bool, error) {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	ce := s.cells[to]
	switch {
	case t.dead || s.closed.Load():
		return 0, false, ErrClosed
	case ce == nil && id == 0:
		return 0, true, nil
	case ce == nil || !reached(ce.last, id):
		return 0, false, invalid("operation %d to %v was not issued", id, to)
	}
	if hwm := ce.hwm(); id == 0 || reached(hwm, id) {
		return hwm, true, nil
	}
	if arm {
		// The smallest id anybody waits for; the daemon clears it when it is
		// reached, and those who wait for more arm again.
		if cur := ce.want.LoadArmed(); cur == 0 || !reached(id-ce.base, cur) {
			ce.want.StoreArmed(id - ce.base)
		}
		if hwm := ce.hwm(); reached(hwm, id) {
			return hwm, true, nil
		}
	}
	return ce.hwm(), false, nil
}

// BarrierAll waits until every operation that this socket has issued so far, to any
// destination, is locally complete. Its errors are those of Barrier.
func (s *Socket) BarrierAll(ctx context.Context) error {
	t := &s.c.tx
	t.mu.Lock()
	snapshot := make(map[netip.Addr]uint64, len(s.cells))
	for a, ce := range s.cells {
		if ce.last > 0 {
			snapshot[a] = ce.last
		}
	}
	t.mu.Unlock()
	if s.closed.Load() {
		return opErr("barrier", netip.AddrPort{}, ErrClosed)
	}
	for a, id := range snapshot {
		if _, err := s.Barrier(ctx, a, id); err != nil {
			return err
		}
	}
	return nil
}

// WaitOp waits for the status of the operation id to the host to, and takes it out
// of the completion queue. The operation must have asked for its status (Notify).
// Errors: those of Barrier; ErrInvalid if no status will come, because the operation
// is not known, did not ask, or its status was taken.
func (s *Socket) WaitOp(ctx context.Context, to netip.Addr, id uint64) (Completion, error) {
	to = to.Unmap()
	var got Completion
	err := s.waitUntil(ctx, wantCompletion, func(bool) (bool, error) {
		var ok bool
		var err error
		got, ok, err = s.takeOp(to, id)
		return ok, err
	})
	return got, opErr("wait", netip.AddrPortFrom(to, 0), err)
}

func (s *Socket) takeOp(to netip.Addr, id uint64) (Completion, bool, error) {
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.closed.Load() {
		return Completion{}, false, ErrClosed
	}
	r.takeEvents()
	i, err := s.findStatus(to, id)
	if i < 0 {
		return Completion{}, false, err
	}
	s.queuedComps.Add(-1)
	c := s.comps.remove(i)
	s.taken()
	return c, true, nil
}

// findStatus returns the place of an operation's completion in the queue, or -1 if
// the completion is still to come. ErrInvalid: it will not come, because the
// operation was not issued, did not ask for it, or it was taken. rx.mu is held.
func (s *Socket) findStatus(to netip.Addr, id uint64) (int, error) {
	i := s.findComp(to, id)
	if i >= 0 {
		return i, nil
	}
	if _, ok := s.findAwaited(to, id); ok {
		return -1, nil
	}
	return -1, invalid("no status of operation %d to %v is to come", id, to)
}

// findAwaited returns the key of an operation that asked for a completion which has
// not come yet. rx.mu is held.
func (s *Socket) findAwaited(to netip.Addr, id uint64) (opKey, bool) {
	for cell, c := range s.cellAddr {
		if c.addr != to {
			continue
		}
		key := opKey{cell: cell, id: id}
		if op := s.awaited[key]; op.notify && op.wanted {
			return key, true
		}
	}
	return opKey{}, false
}

// findComp returns the place of an operation's completion in the queue, or -1. A status of a message, which
// has ID 0, is none. rx.mu is held.
func (s *Socket) findComp(to netip.Addr, id uint64) int {
	for i := range s.comps.len() {
		if c := s.comps.at(i); id != 0 && c.ID == id && c.To == to {
			return i
		}
	}
	return -1
}
