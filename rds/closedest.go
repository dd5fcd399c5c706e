package rds

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"
)

// CloseDest gives back what the socket keeps for the destination to: its place in
// the client's table and in the user's quota.destinations. No PeerDown or PeerUp
// about the destination comes any more. A later send opens the destination again.
// Barrier ids and the high-water mark of the host go on.
//
// A socket need not close its destinations: those without anything in flight make
// room for others by themselves.
//
// Errors: EBUSY while a message to the destination is not acknowledged or withdrawn;
// wait for that (WaitSet.SendSpace, Barrier) or call CancelSentTo first. ErrClosed,
// ErrDaemonGone, ErrSession. It returns nil if the socket has no such destination.
func (s *Socket) CloseDest(to netip.AddrPort) error {
	to = normal(to)
	for {
		done, err := s.closeDest(to)
		if done || err != nil {
			return opErr("close destination", to, err)
		}
		_ = s.ringWait(false)             // for room in the ring,
		time.Sleep(50 * time.Microsecond) // or for the daemon to have opened it
	}
}

func (s *Socket) closeDest(to netip.AddrPort) (done bool, err error) {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed.Load() {
		return false, ErrClosed
	}
	err = s.state()
	_, away := err.(*outage)
	if err != nil && !away {
		return false, err
	}
	t.reap()
	d := s.dests[to]
	switch {
	case d == nil:
		return true, nil
	case d.pending > 0:
		return false, fmt.Errorf("%w: %d messages are not acknowledged", syscall.EBUSY, d.datagrams)
	case away:
		t.forget(d) // and it is not opened again
		t.relieve(d)
		return true, nil
	case !d.isOpen() || !t.sub.FreeAtLeast(1):
		return false, nil
	}
	t.closeDest(d)
	if t.publish() {
		s.c.ringDaemon()
	}
	return true, nil
}
