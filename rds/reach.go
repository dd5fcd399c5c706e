package rds

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/internal/shm"
)

// Reason says why a host is not reached. It is an error that is one of these errnos:
//
//	EACCES        peers.allow of this host does not name the host
//	EHOSTUNREACH  the network has no route to the host, or another reason, such as TLS:
//	              rdsctl events says more
//	ECONNREFUSED  no daemon listens at the host
//	EHOSTDOWN     nothing answers
//	EPERM         the host's daemon rejects this host, by its peers.allow or its version:
//	              rdsctl ping and peers say which, and both versions
type Reason uint8

var reasons = [...]struct {
	text  string
	errno syscall.Errno
}{
	shm.ReachForbidden: {"peers.allow of this host does not name it", syscall.EACCES},
	shm.ReachNoRoute:   {"no route to it", syscall.EHOSTUNREACH},
	shm.ReachRefused:   {"no daemon listens there", syscall.ECONNREFUSED},
	shm.ReachTimeout:   {"nothing answers", syscall.EHOSTDOWN},
	shm.ReachRejected:  {"its daemon rejects this host (rdsctl ping says why, with both versions if they differ)", syscall.EPERM},
	shm.ReachOther:     {"no connection (rdsctl ping says why)", syscall.EHOSTUNREACH},
}

const forbidden = Reason(shm.ReachForbidden)

// Error returns that the host is not reached, and why.
func (r Reason) Error() string {
	if r == 0 {
		return "no reason"
	}
	if int(r) < len(reasons) {
		return "host not reached: " + reasons[r].text
	}
	return fmt.Sprintf("host not reached: reason %d", uint8(r))
}

// Unwrap returns the errno.
func (r Reason) Unwrap() error {
	if r == 0 {
		return nil
	}
	if int(r) < len(reasons) {
		return reasons[r].errno
	}
	return syscall.EHOSTUNREACH
}

// SetFailUnreachable chooses what becomes of sends to a host that is not reached
// while other messages of the socket wait for it. With true they fail with the
// Reason. With false, the default, they wait, too. The first message to a
// destination always waits, so that the daemon goes on trying. Sends to a host that
// peers.allow forbids always fail. The calls that wait for their operation, such as RDMARead and
// those of Remote, fail in any case.
func (s *Socket) SetFailUnreachable(on bool) { s.failUnreachable.Store(on) }

// reason returns why the host of to is not reached, or 0 if it is or nobody knows.
func (s *Socket) reason(to netip.AddrPort) Reason {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	d := s.dests[normal(to)]
	if t.dead || s.state() != nil || d == nil || !d.isOpen() {
		return 0
	}
	return Reason(d.shared.LoadUnreachable())
}

// unreachable returns why nothing may be sent to d now, or nil. tx.mu is held.
func (t *tx) unreachable(s *Socket, d *dest) error {
	why := Reason(d.shared.LoadUnreachable())
	if why == 0 || !d.isOpen() {
		return nil
	}
	if why == forbidden {
		return why
	}
	if s.failUnreachable.Load() && d.pending > 0 {
		if t.reap(); d.pending > 0 {
			return why
		}
	}
	return nil
}

// complete is Barrier for op, an operation to to. If the host turns out not to be reached, why is the
// Reason, and op is withdrawn unless it has gone out.
func (s *Socket) complete(ctx context.Context, to netip.AddrPort, op OpRef) (why Reason, err error) {
	for last := Reason(0); ; {
		local, now, err := s.barrierOrReason(ctx, to, op, last)
		if err != nil || local {
			return why, err
		}
		if last = now; now != 0 {
			why = now
			s.withdraw(ctx, op)
		}
	}
}

// barrierOrReason waits until op is locally complete, or the host of to is not reached for another reason than last.
func (s *Socket) barrierOrReason(ctx context.Context, to netip.AddrPort, op OpRef, last Reason) (local bool, now Reason, err error) {
	now = last
	err = s.waitUntil(ctx, wantBarrier, func(arm bool) (bool, error) {
		_, ok, err := s.barrierTry(op.Addr, op.ID, arm)
		if local = ok; !ok {
			now = s.reason(to)
		}
		return ok || now != last, err
	})
	return local, now, err
}

// withdraw has the daemon withdraw op, unless op has gone out. The status of op says what became of it.
// withdraw waits while the submission ring is full, until ctx ends.
func (s *Socket) withdraw(ctx context.Context, op OpRef) {
	t := &s.c.tx
	for done := false; !done && ctx.Err() == nil; {
		t.mu.Lock()
		done = t.withdraw(s, op)
		t.unlock()
		if !done {
			_ = s.ringWait(false)
		}
	}
}

// withdraw is Socket.withdraw without the wait: it returns false if the ring has no room. As long as
// the status of op has not come, no other message has the id of op's message. mu is held.
func (t *tx) withdraw(s *Socket, op OpRef) bool {
	if t.dead || s.closed.Load() || s.state() != nil {
		return true
	}
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeEvents()
	key, awaited := s.findAwaited(op.Addr, op.ID)
	switch {
	case !awaited:
		return true
	case !t.sub.FreeAtLeast(1):
		return false
	}
	*t.sub.Reserve().Sub() = shm.Sub{Kind: shm.KindCancel, Sock: s.handle, Slot: shm.NoSlot, MsgID: s.awaited[key].msg}
	return true
}
