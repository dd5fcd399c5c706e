package afrds

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
)

// Events of Poll (asm-generic/poll.h).
const (
	PollIn     = 0x0001
	PollOut    = 0x0004
	PollErr    = 0x0008
	PollRdNorm = 0x0040
	PollWrNorm = 0x0100
	PollWrBand = 0x0200
)

const (
	pollRead  = PollIn | PollRdNorm
	pollWrite = PollOut | PollWrNorm
)

// Poll is poll(2) of this one socket. It returns those of events that hold, and
// waits for one for at most timeout, or without limit if timeout is negative.
// PollErr is reported when the daemon is gone, whether it was asked for or not.
// PollHup is never reported. EINTR: Interrupt. EBADF: the socket is closed.
//
// PollIn and PollRdNorm: a message, a status, a report of the congestion monitor,
// zero-copy cookies, or a barrier that was armed can be taken. Without the monitor
// the end of congestion that a send had met is reported once, with PollWrBand as
// well. PollOut and PollWrNorm: the send buffer has room, whatever the state of a
// destination.
//
// Source: net/rds/af_rds.c rds_poll.
func (s *Socket) Poll(events int, timeout time.Duration) (int, error) {
	ctx, cancel := s.waiting(max(timeout, 0))
	defer cancel()
	for {
		got, err := s.poll(events)
		if got != 0 || err != nil || timeout == 0 {
			return got, err
		}
		rs, err := s.socket()
		if err != nil {
			return 0, err
		}
		w := s.pollSet(events)
		if rs == nil {
			select {
			case <-s.isBound:
				continue
			case <-ctx.Done():
			}
		} else if _, err = rs.Wait(ctx, w); err == nil {
			continue
		} else if ctx.Err() == nil {
			return PollErr, nil
		}
		switch err := s.ended(ctx); err {
		case syscall.ETIMEDOUT:
			return 0, nil
		default:
			return 0, err
		}
	}
}

// pollSet returns the conditions of package rds that make one of events true.
func (s *Socket) pollSet(events int) rds.WaitSet {
	reads := events&pollRead != 0
	w := rds.WaitSet{SendSpace: events&pollWrite != 0, Message: reads, Completion: reads, ZeroCopy: reads}
	w.Notice = true // none comes: it stands for the end, if there is nothing else to wait for
	*krds.Congestion(&w) = reads
	s.mu.Lock()
	defer s.mu.Unlock()
	if events&(pollRead|PollWrBand) != 0 {
		for to := range s.congested {
			w.Relief = append(w.Relief, to)
		}
	}
	if reads {
		for to, id := range s.armed {
			w.Op = append(w.Op, rds.OpRef{Addr: to, ID: id})
		}
	}
	return w
}

// poll returns those of events that hold now.
func (s *Socket) poll(events int) (int, error) {
	rs, err := s.socket()
	switch {
	case err != nil:
		return 0, err
	case rs == nil:
		return events & pollWrite, nil
	}
	s.mu.Lock()
	kept := s.hasStatus || s.cong != 0
	s.mu.Unlock()
	ready, err := rs.Wait(rds.DontWait, s.pollSet(events))
	gone := s.k.c.Err() != nil
	if err != nil && !wouldBlock(err) && !gone {
		return PollErr, nil
	}
	got := 0
	if kept || ready.Message || ready.Completion || *krds.Congestion(&ready) || ready.ZeroCopy || len(ready.Op) > 0 {
		got |= pollRead
	}
	if ready.SendSpace {
		got |= pollWrite
	}
	if s.relieved(ready.Relief) {
		got |= pollRead | PollWrBand
	}
	got &= events
	if gone {
		got |= PollErr
	}
	return got, nil
}

// relieved drops the destinations that are free again from those that poll has to
// report, and says whether there were any.
func (s *Socket) relieved(free []netip.AddrPort) bool {
	s.mu.Lock()
	n := len(s.congested)
	for _, to := range free {
		delete(s.congested, to)
	}
	any := len(s.congested) < n
	s.mu.Unlock()
	if any {
		_, _ = s.repoll()
	}
	return any
}

// tellRelief drops the destinations that are free again when a receive has found
// nothing: the descriptor has reported them to this caller.
func (s *Socket) tellRelief() {
	s.mu.Lock()
	rs, polled := s.rs, s.polled
	s.mu.Unlock()
	if polled {
		ready, _ := rs.Wait(rds.DontWait, s.pollSet(PollWrBand))
		s.relieved(ready.Relief)
	}
}

// repoll makes the descriptor report what poll would wait for now. An error is that of the
// socket, which the descriptor tells as well.
func (s *Socket) repoll() (int, error) {
	s.repolls.Lock()
	defer s.repolls.Unlock()
	s.mu.Lock()
	rs, polled := s.rs, s.polled
	s.mu.Unlock()
	if !polled {
		return -1, nil
	}
	fd, err := rs.PollFD(s.pollSet(pollRead | PollWrBand))
	return fd, errno(err)
}

// PollFD returns a descriptor for poll, select or epoll. It is readable while Poll
// would report PollIn. It belongs to the socket and is closed with it. ENOTCONN: the
// socket is not bound. EMFILE, ENFILE.
//
// A barrier is reported until it is asked for again. The end of congestion, without
// the monitor, is reported until Poll has reported it or Recvmsg has found nothing.
// Room in the send buffer is not reported: try to send.
func (s *Socket) PollFD() (int, error) {
	if _, err := s.boundSocket(); err != nil {
		return -1, err
	}
	s.mu.Lock()
	s.polled = true
	s.mu.Unlock()
	return s.repoll()
}
