package rds

import (
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
)

// recv receives one message into m, waiting as the socket's mode, its deadline
// and m.DontWait say.
func (s *Socket) recv(m *Message) error {
	dontWait := m.DontWait || s.nonblock.Load()
	var w *waiter
	for {
		done, err := s.tryRecv(m)
		switch {
		case done || err != nil:
			s.endWait(&w)
			return err
		case dontWait:
			return errRecvWouldBlock
		case w == nil:
			w = s.enter(wantMessage, false) // and look again
		default:
			s.c.park(w)
			s.endWait(&w)
		}
	}
}

// tryRecv takes one message if there is one. An expired deadline or a close
// passes the wake-up that was meant for this caller on to another.
func (s *Socket) tryRecv(m *Message) (bool, error) {
	c, r := s.c, &s.c.rx
	r.mu.Lock()
	if s.closed.Load() {
		r.mu.Unlock()
		return false, errRecvClosed
	}
	if s.rdl.expired.Load() {
		s.passOn()
		r.mu.Unlock()
		return false, errRecvDeadline
	}
	if m.Peek {
		return s.peek(m)
	}
	e, ok := r.next(s)
	if !ok {
		r.mu.Unlock()
		// What had been delivered before the daemon went is read by now.
		return false, opErr("recv", netip.AddrPort{}, c.Err())
	}
	if err := s.take(m, &e); err != nil {
		r.mu.Unlock()
		return false, err
	}
	r.giveBack(e.RxID)
	s.passOn()
	ring := r.flush()
	r.mu.Unlock()
	if ring {
		c.ringDaemon()
	}
	return true, nil
}

// passOn wakes another receiver if there is something left for it. rx.mu is
// held.
func (s *Socket) passOn() {
	if s.rxq.len() > 0 {
		s.notifyOne(wantMessage)
	}
	s.taken()
}

// peek copies the first message and leaves it. rx.mu is held and released.
func (s *Socket) peek(m *Message) (bool, error) {
	r := &s.c.rx
	defer r.mu.Unlock()
	r.drain()
	if s.rxq.len() == 0 {
		return false, opErr("recv", netip.AddrPort{}, s.c.Err())
	}
	e := *s.rxq.at(0)
	err := s.fill(m, &e)
	s.passOn()
	return err == nil, err
}

// take copies e's payload out. A large payload is copied without the lock.
func (s *Socket) take(m *Message, e *shm.Event) error {
	if min(int(e.Len), len(m.Payload)) <= inlineCopy {
		return s.fill(m, e)
	}
	c := s.c
	c.pins.Add(1)
	c.rx.mu.Unlock()
	err := s.fill(m, e)
	c.pins.Done()
	c.rx.mu.Lock()
	return err
}

// fill describes e in m and copies its payload.
func (s *Socket) fill(m *Message, e *shm.Event) error {
	m.Len = int(e.Len)
	m.Addr = netip.AddrPortFrom(netip.AddrFrom16(e.SrcAddr).Unmap(), e.SrcPort)
	m.Cookie = Cookie(e.Cookie)
	m.when = e.RecvTime
	m.N = 0
	if e.Len > 0 && len(m.Payload) > 0 {
		r := &s.c.rx
		if !r.arena.Valid(e.Chunk, int(e.Len)) || e.RxID >= r.maxRx {
			return s.c.broken("message %d of %d bytes at chunk %d is outside the receive arena", e.RxID, e.Len, e.Chunk)
		}
		m.N = copy(m.Payload, r.arena.Bytes(e.Chunk, int(e.Len)))
	}
	m.Truncated = m.N < m.Len
	if s.rxTrace.Load() {
		m.Trace = traceOf(e, time.Now())
	}
	return nil
}

// RecvFrom receives one message into p and returns the number of bytes copied
// and the source. A message longer than p is truncated without an error, as
// with UDP; RecvMsg tells its full length.
//
// It blocks until a message is there; the read deadline
// (os.ErrDeadlineExceeded), Close (ErrClosed) and the daemon's end
// (ErrDaemonGone, ErrSession: after what was delivered has been read) end the
// wait. A non-blocking socket returns ErrWouldBlock. It allocates nothing.
//
// Source: recvmsg(2); net/rds/recv.c rds_recvmsg.
func (s *Socket) RecvFrom(p []byte) (n int, from netip.AddrPort, err error) {
	m := Message{Payload: p}
	err = s.recv(&m)
	return m.N, m.Addr, err
}

// RecvMsg receives one message into m.Payload and fills in N, Len, Truncated,
// Addr, Cookie and Time. With m.Peek the message stays. Blocking and errors as
// RecvFrom; m.DontWait makes this call non-blocking.
func (s *Socket) RecvMsg(m *Message) error {
	if err := s.recv(m); err != nil {
		return err
	}
	m.Time = time.Unix(0, m.when)
	return nil
}

// RecvMsgs receives into ms as many messages as are there, at least one, and
// returns how many. Only the wait for the first one blocks, as in RecvMsg; the
// first element's DontWait counts and Peek is ignored.
func (s *Socket) RecvMsgs(ms []Message) (int, error) {
	if len(ms) == 0 {
		return 0, nil
	}
	peek := ms[0].Peek
	ms[0].Peek = false
	err := s.RecvMsg(&ms[0])
	ms[0].Peek = peek
	if err != nil {
		return 0, err
	}
	c, r := s.c, &s.c.rx
	n := 1
	r.mu.Lock()
	for n < len(ms) && !s.closed.Load() {
		e, ok := r.next(s)
		if !ok {
			break
		}
		if err = s.take(&ms[n], &e); err != nil {
			break
		}
		ms[n].Time = time.Unix(0, ms[n].when)
		r.giveBack(e.RxID)
		n++
	}
	s.passOn()
	ring := r.flush()
	r.mu.Unlock()
	if ring {
		c.ringDaemon()
	}
	return n, nil
}
