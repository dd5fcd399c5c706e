package rds

import (
	"context"
	"time"
)

// SetLinger has Close wait up to d until everything sent is acknowledged, as
// CloseWait does. A new socket does not wait, as in the kernel; 0 goes back to
// that. ErrInvalid below 0.
func (s *Socket) SetLinger(d time.Duration) error {
	if d < 0 {
		return opErr("set linger", s.local, invalid("%v", d))
	}
	s.c.tx.mu.Lock()
	defer s.c.tx.mu.Unlock()
	s.linger = d
	return nil
}

// CloseWait closes the socket, but first waits until every message it sent is
// acknowledged by its destination's host, or withdrawn (CancelSentTo,
// GiveUpAfter, notices), or ctx ends. The socket is of no more use from the
// start: other calls fail with ErrClosed, and messages not received are
// dropped, those that still come too. Only what it was told can be read, while
// CloseWait waits and later, with Completions, Notices, ZeroCopyDone and HWM. It is
// closed when CloseWait returns,
// whatever it returns: nil, if there was nothing left to wait for; the
// context's error, if messages were still on their way; ErrDaemonGone,
// ErrSession or ErrClosed, as in Close.
//
// Acknowledged is not read: an application that must know more has its peers
// answer.
func (s *Socket) CloseWait(ctx context.Context) error {
	if err := s.shut(); err != nil {
		return err
	}
	s.c.rx.discard(s)
	err := s.waitUntil(ctx, wantSpace, func(bool) (bool, error) { return s.allReturned(), nil })
	s.finishClose()
	return opErr("close", s.local, err)
}

// lingering is Close for a socket that waits up to d.
func (s *Socket) lingering(d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return s.CloseWait(ctx)
}

// allReturned reports that no message of s is outstanding. A slot with messages
// outstanding is never closed, so the open ones know of all.
func (s *Socket) allReturned() bool {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return false
	}
	t.reap()
	for _, d := range s.dests {
		if d.pending > 0 {
			return false
		}
	}
	return true
}
