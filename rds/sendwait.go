package rds

import (
	"context"
	"net/netip"
	"runtime"
	"time"

	"github.com/rdsd/rdsd/internal/wait"
)

const (
	// ringYield is how long a sender yields to a daemon that is behind before
	// it sleeps: the time in which an idle one takes hundreds of entries.
	ringYield = 200 * time.Microsecond
	// ringSleep is how long it sleeps then, before it looks again.
	ringSleep = 100 * time.Microsecond
	// openPatience is how long a caller that does not wait waits for the daemon to open
	// a destination. One that is stuck must not hold it for good.
	openPatience = time.Second
)

// sendWait waits for what err says is missing. The first call for a reason only
// registers the waiter: the caller must try again before it waits.
func (s *Socket) sendWait(ctx context.Context, m *outMsg, err error, w **waiter, dontWait bool) error {
	want := wantSpace
	switch {
	case !dontWait && ctx.Err() != nil:
		return ctx.Err()
	case err == errRingFull:
		// A waiter can be the leader. Who waits in another way must be none.
		if s.endWait(w); s.ringWait(dontWait) == nil {
			return nil
		}
	case err == errOpening:
		s.endWait(w)
		return s.openWait(ctx, m.to, dontWait)
	case err == errNoMemory && m.windows >= 0:
		s.endWait(w)
		s.c.tx.growArena(m.windows)
		return nil
	case err == errNoMemory:
		want = wantMemory
	case err == ErrCongested:
		want = wantRelief
	}
	if dontWait && s.pollLooks.Load() {
		s.pollLook() // the descriptor must tell when it is worth another try
	}
	switch {
	case dontWait && err == ErrCongested:
		if s.congMon.Load() {
			s.congFailed(m.to)
		}
		return errSendCongested
	case dontWait:
		return errSendWouldBlock
	case *w != nil && (*w).want == want:
		s.c.parkContext(ctx, *w)
		s.endWait(w)
	default:
		s.endWait(w)
		*w = s.enter(want, false)
	}
	return nil
}

// ringWait waits until the daemon has taken something from the submission ring.
// Nothing announces that, but a daemon that is awake does so within microseconds,
// and the daemon is awake because it was rung.
func (s *Socket) ringWait(dontWait bool) error {
	if yieldUntil(s.c.tx.ringFree) {
		return nil
	}
	if dontWait {
		return errSendWouldBlock
	}
	time.Sleep(ringSleep)
	return nil
}

// yieldUntil yields to the daemon until done is true. It gives up after a time in
// which a daemon that is awake would have finished.
func yieldUntil(done func() bool) bool {
	start := time.Now()
	for tries := 0; tries < 100 && time.Since(start) <= ringYield; tries++ {
		runtime.Gosched()
		wait.GiveWay()
		if done() {
			return true
		}
	}
	return false
}

// openWait waits until the daemon has opened the destination to, as a control call
// waits for its answer. It does so even for a caller that must not wait for its
// message; only if the daemon is far behind does such a caller get an error. The
// daemon is awake, because it was rung.
func (s *Socket) openWait(ctx context.Context, to netip.AddrPort, dontWait bool) error {
	open := func() bool { return s.c.tx.isOpen(s, to) || !dontWait && ctx.Err() != nil }
	done := yieldUntil(open)
	for start := time.Now(); !done && time.Since(start) < openPatience; done = open() {
		time.Sleep(ringSleep)
	}
	if !done && dontWait {
		return errSendWouldBlock
	}
	return nil
}

// isOpen reports that a send to the destination to can be tried again at once.
func (t *tx) isOpen(s *Socket, to netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := s.dests[to]
	return t.dead || d == nil || d.isOpen() || s.state() != nil || s.closed.Load() || s.wdl.expired.Load()
}

func (t *tx) ringFree() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return true
	}
	free := t.sub.FreeAtLeast(openEntries)
	if err := t.sub.Err(); err != nil {
		_ = t.c.broken("submission ring: %v", err)
		return true // there is nothing to wait for
	}
	return free
}
