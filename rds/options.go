package rds

import (
	"context"
	"net/netip"
)

// SetLane puts the socket into lane l. Sockets of one lane share one connection to a
// host, and the messages of different lanes do not wait for each other. A new socket
// is in lane 0. The sender's lane counts; receivers do not see it. Between sockets
// of one host lanes make no difference.
//
// The lane can be set once. ErrInvalid: it is not 0 already, a send was tried, or a
// region was exposed.
//
// Source: SIOCRDSSETTOS, net/rds/af_rds.c rds_ioctl; the lane is RDS's type of
// service.
func (s *Socket) SetLane(l uint8) error {
	return opErr("set lane", s.local, s.setLane(l))
}

func (s *Socket) setLane(l uint8) error {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.closed.Load():
		return ErrClosed
	case s.lane != 0:
		return invalid("the lane is %d already", s.lane)
	case s.dests != nil || s.exposed:
		return invalid("the socket has sent, or exposed a region, in lane 0")
	}
	s.lane = l
	return nil
}

// SetAnybody chooses which socket gets the messages that do not name one (Message.DstInc). With
// false, the default, a destination meets the socket that takes its first message. The later ones
// go to that socket or come back (NoSocket), also when another one is bound at the port by then.
// With true each message goes to whichever socket is bound at its port when it arrives, and
// comes back only if there is none. So the first messages to a port that was bound anew do not
// come back. Who is bound may have seen nothing of what was sent before. A message with an operation on
// memory of a socket at its port is for that socket in any case.
//
// It is chosen before the first send. ErrInvalid: a send was tried, or a region was exposed in
// another lane than 0. EOPNOTSUPP, also of sends after a Client has opened again: the daemon is of an
// older version.
func (s *Socket) SetAnybody(on bool) error {
	return opErr("set anybody", s.local, s.setAnybody(on))
}

func (s *Socket) setAnybody(on bool) error {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.closed.Load():
		return ErrClosed
	case s.dests != nil:
		return invalid("the socket has sent, or exposed a region in lane %d", s.lane)
	case on && !t.anybody:
		return errAnybody
	}
	s.anybody, s.orMeets = on, false
	return nil
}

// fixLane makes the daemon learn the socket's lane before the control request that
// follows. The lane goes with the first destination that is opened.
func (s *Socket) fixLane(ctx context.Context, to netip.AddrPort) error {
	return s.openDest(ctx, to, func() bool {
		s.exposed = true
		return s.lane != 0 && len(s.dests) == 0
	})
}

// openDest opens the destination to, unless s has ended or needed says no, with tx.mu held.
func (s *Socket) openDest(ctx context.Context, to netip.AddrPort, needed func() bool) error {
	t := &s.c.tx
	for {
		t.mu.Lock()
		need, err := needed(), s.state()
		if s.closed.Load() {
			err = ErrClosed
		}
		if need && err == nil {
			_, err = t.dest(s, to)
		}
		t.unlock()
		switch {
		case err != errRingFull:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		_ = s.ringWait(false)
	}
}

// noticeSet is a set of NoticeKinds.
type noticeSet uint32

func (n noticeSet) has(k NoticeKind) bool { return k < 32 && n&(1<<k) != 0 }

// SetNotices chooses which kinds of notices are queued from now on. Others are
// dropped when they come. A new socket queues all kinds. SetNotices() queues none.
func (s *Socket) SetNotices(kinds ...NoticeKind) {
	unwanted := ^noticeSet(0)
	for _, k := range kinds {
		unwanted &^= 1 << k
	}
	s.c.rx.mu.Lock()
	defer s.c.rx.mu.Unlock()
	s.unwanted = unwanted
}
