package rds

import (
	"context"
	"errors"
	"fmt"
)

// CloseWait waits until every message that the socket sent is acknowledged by its
// destination's host, is withdrawn (CancelSentTo, GiveUpAfter) or has come back as a
// notice, or until ctx ends. Then it closes the socket.
//
// From its start other calls fail with ErrClosed, and messages that were not
// received, or come later, are dropped. Completions, Notices, ZeroCopyDone and HWM
// still return what the socket is told, while CloseWait waits and afterwards.
//
// The socket is closed when CloseWait returns, with any result: nil if nothing was left to
// wait for and nothing was lost; the context's error if messages were still on their way;
// ErrDaemonGone, ErrSession or ErrClosed as in Close. If messages were not delivered and
// nobody has taken the notices (Lost, NoSocket, GaveUp, NotGranted) or completions that say so,
// the error is each of their kinds and statuses: errors.Is(err, rds.NoSocket). Notices and
// Completions still return them. What SetNotices has turned off, and Canceled, is no error. A
// notice for which the daemon finds no room in the client's queue until the close is missed.
//
// An acknowledgement says that the message is in the receiver's queue, not that the
// receiver has read it. An application that must know more lets its peers answer.
func (s *Socket) CloseWait(ctx context.Context) error {
	if err := s.shut(); err != nil {
		return err
	}
	s.c.rx.discard(s)
	err := s.waitUntil(ctx, wantSpace, func(bool) (bool, error) {
		if err := s.ended(); errors.Is(err, ErrDaemonGone) {
			return false, err
		}
		if s.allReturned() {
			return true, nil
		}
		if o, is := s.c.state().(*outage); is {
			return false, o.cause // nothing comes back of a daemon that has gone
		}
		return false, nil
	})
	s.finishClose()
	if err == nil {
		err = s.undelivered()
	}
	return opErr("close", s.local, err)
}

// undelivered returns an error that is each kind of the unread notices of messages that were
// not delivered, and each status of the unread completions of such.
func (s *Socket) undelivered() error {
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []error
	for _, k := range []NoticeKind{NoSocket, Lost, GaveUp, NotGranted} {
		for i := range s.notices.len() {
			if n := s.notices.at(i); n.Kind == k {
				to := any("several destinations")
				if n.To.IsValid() {
					to = n.To
				}
				all = append(all, fmt.Errorf("not delivered to %v: %w (messages: %d)", to, k, n.Count))
				break
			}
		}
	}
	for _, st := range []Status{RemoteError, Dropped, OtherError, Unknown} {
		for i := range s.comps.len() {
			if c := s.comps.at(i); c.Status == st {
				what, number := "operation", c.ID
				if number == 0 {
					what, number = "message with token", c.Token
				}
				all = append(all, fmt.Errorf("not delivered to %v: %s %d: %w", c.To, what, number, c.Err()))
				break
			}
		}
	}
	return errors.Join(all...)
}

// allReturned reports that no message of s is outstanding. A slot with outstanding
// messages is never closed, so the open slots know of all messages.
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
