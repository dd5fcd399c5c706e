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
