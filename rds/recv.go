package rds

import (
	"context"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
)

// receive says what a receive takes, and to where.
type receive struct {
	p     []byte
	e     *shm.Event
	trace *string // nil: its traceparent is not wanted
	peek  bool
	whole bool // a message longer than p stays in the queue: errLonger
	woken bool // the caller sees to it that the end of the context wakes the receivers
}

// recv receives one message: its event into a.e, and as much of its payload as fits
// into a.p. n is how much that was. It waits as the socket's deadline and ctx say, unless dontWait is
// set. rx.mu is held, and released inside.
func (s *Socket) recv(ctx context.Context, a receive, dontWait bool) (n int, err error) {
	var w *waiter
	for ; ; s.c.rx.mu.Lock() {
		n, done, err := s.tryRecv(a)
		switch {
		case done || err != nil:
			s.endRecv(&w)
			return n, err
		case dontWait:
			return 0, errRecvWouldBlock
		case w == nil:
			w = s.enter(wantMessage, false) // and look again
		case ctx.Err() != nil:
			s.endRecv(&w)
			return 0, ctx.Err()
		default:
			if a.woken {
				s.c.park(w)
			} else {
				s.c.parkContext(ctx, w)
			}
			s.endWait(&w)
		}
	}
}

// endRecv ends the waiting of a receiver that has a message or an error. If the
// receiver was woken all the same, it wakes another one for whatever it was woken
// for.
func (s *Socket) endRecv(w **waiter) {
	if !s.endWait(w) {
		return
	}
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	s.passOn()
}

// tryRecv takes one message if there is one. If a deadline, a close or the message's
// length ends the receive instead, it wakes another receiver in place of this one. With
// errLonger n is the length of the message. rx.mu is held, and released inside.
func (s *Socket) tryRecv(a receive) (n int, done bool, err error) {
	r := &s.c.rx
	if s.closed.Load() {
		r.mu.Unlock()
		return 0, false, errRecvClosed
	}
	if s.rdl.expired.Load() {
		s.passOn()
		r.mu.Unlock()
		return 0, false, errRecvDeadline
	}
	if a.peek {
		return s.peek(a)
	}
	if a.whole {
		if n, err = s.nextLen(a.e); err == nil && n > len(a.p) {
			err = errLonger
			s.passOn()
		}
		if err != nil {
			r.mu.Unlock()
			return n, false, err
		}
	}
	var ok bool
	if !a.whole || s.unread() { // a message that has come since may be a longer one
		n, ok, err = s.takeNext(a.p, a.e, a.trace)
	}
	if err != nil {
		r.mu.Unlock()
		return 0, false, err
	}
	if !ok {
		r.mu.Unlock() // what was found for sockets that are closed
		// What had been delivered before the daemon went is read by now.
		return 0, false, opErr("recv", netip.AddrPort{}, s.err())
	}
	s.passOn()
	r.mu.Unlock()
	return n, true, nil
}

// passOn wakes another receiver if there is something left for it. rx.mu is
// held.
func (s *Socket) passOn() {
	if s.unread() {
		s.notifyOne(wantMessage)
		s.left()
	}
	s.taken()
}

// peek copies the first message and leaves it in the queue. rx.mu is held, and
// released inside.
func (s *Socket) peek(a receive) (n int, done bool, err error) {
	r, e := &s.c.rx, a.e
	defer r.mu.Unlock()
	r.takeEvents()
	if !s.unread() {
		return 0, false, opErr("recv", netip.AddrPort{}, s.err())
	}
	if err := s.beginNext(e); err != nil {
		return 0, false, err
	}
	if s.in.rest != nil {
		var f []byte
		f, _, err = s.first()
		*e = s.in.ev
		e.Len = uint32(len(f))
		n = copy(a.p, f)
	} else {
		*e = *s.rxq.at(0)
		n, err = s.copyOut(a.p, e)
	}
	if err == nil {
		err = r.traceparent(e, a.trace)
	}
	s.passOn()
	return n, err == nil, err
}

// beginNext makes the run that is next in the queue, if it is a run, the one that is
// received from. e is scratch. rx.mu is held, and a message is unread.
func (s *Socket) beginNext(e *shm.Event) error {
	r := &s.c.rx
	if s.in.rest == nil && s.rxq.at(0).Flags&shm.EventRun != 0 && r.next(s, e) {
		return r.begin(s, e)
	}
	return nil
}

// nextLen returns the length of the next message, or 0 if there is none. e is scratch.
// rx.mu is held.
func (s *Socket) nextLen(e *shm.Event) (int, error) {
	s.c.rx.takeEvents()
	if !s.unread() {
		return 0, nil
	}
	if err := s.beginNext(e); err != nil {
		return 0, err
	}
	if s.in.rest == nil {
		return int(s.rxq.at(0).Len), nil
	}
	f, _, err := s.first()
	return len(f), err
}

// take copies e's payload out. A large payload is copied without the lock.
func (s *Socket) take(p []byte, e *shm.Event) (n int, err error) {
	if min(int(e.Len), len(p)) <= inlineCopy || e.RxID >= keptRx {
		return s.copyOut(p, e)
	}
	c := s.c
	c.pins.Add(1)
	c.rx.mu.Unlock()
	n, err = s.copyOut(p, e)
	c.pins.Done()
	c.rx.mu.Lock()
	return n, err
}

func (s *Socket) copyOut(p []byte, e *shm.Event) (int, error) {
	if e.Len == 0 || len(p) == 0 {
		return 0, nil
	}
	from, err := s.c.rx.payload(e, "message")
	return copy(p, from), err
}

func source(e *shm.Event) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(e.SrcAddr).Unmap(), e.SrcPort)
}

// describe sets the fields of m that a receive sets.
func describe(m *Received, e *shm.Event, n int) {
	m.N, m.Len = n, int(e.Len)
	m.Addr, m.SrcInc, m.Cookie, m.Time = source(e), e.SrcInc, Cookie(e.Cookie), time.Unix(0, e.RecvTime)
}

// RecvFrom receives one message into p and returns the number of bytes copied and
// the message's source. A message longer than p is truncated without an error, as
// with UDP; Recv reports its full length. It allocates nothing.
//
// RecvFrom waits until a message is there. The wait ends with os.ErrDeadlineExceeded
// at the read deadline, with ErrClosed at Close, and with ErrDaemonGone or
// ErrSession at the end of the daemon or the session, once everything delivered has
// been read.
//
// Source: recvmsg(2); net/rds/recv.c rds_recvmsg.
func (s *Socket) RecvFrom(p []byte) (n int, from netip.AddrPort, err error) {
	m := Received{Payload: p}
	if s.recvAgain(&m) {
		return m.N, m.Addr, nil
	}
	var e shm.Event
	if n, err = s.recv(context.Background(), receive{p: p, e: &e}, false); err != nil {
		return 0, netip.AddrPort{}, err
	}
	return n, source(&e), nil
}

// Recv receives one message into m.Payload and sets the other fields of m. It waits and
// fails as RecvFrom does, and waits until ctx ends: the error is the context's then. If ctx
// has ended already, it takes no message. With DontWait it does not wait: ErrWouldBlock. It
// allocates only if it has to wait and ctx can end.
func (s *Socket) Recv(ctx context.Context, m *Received) error {
	dontWait, err := impatient(ctx)
	if err == nil && !s.recvAgain(m) {
		_, err = s.recvInto(ctx, m, false, dontWait)
	}
	return recvError(err)
}

// recvInto is recv into m, of a message that stays in the queue if peek is set. rx.mu is held, and
// released inside.
func (s *Socket) recvInto(ctx context.Context, m *Received, peek, dontWait bool) (assembly time.Duration, err error) {
	var e shm.Event
	n, err := s.recv(ctx, receive{p: m.Payload, e: &e, trace: &m.Traceparent, peek: peek}, dontWait)
	if err != nil {
		return 0, err
	}
	describe(m, &e, n)
	return time.Duration(e.Assembly), nil
}

// RecvBatch receives as many messages as are there into ms, at least one, and returns
// how many. Only the wait for the first message blocks, as in Recv.
func (s *Socket) RecvBatch(ctx context.Context, ms []Received) (int, error) {
	if len(ms) == 0 {
		return 0, nil
	}
	if err := s.Recv(ctx, &ms[0]); err != nil {
		return 0, err
	}
	r := &s.c.rx
	n := 1
	var e shm.Event
	r.mu.Lock()
	for n < len(ms) && !s.closed.Load() {
		more, err := r.takeMore(s, ms[n:])
		if n += more; err != nil || n == len(ms) {
			break
		}
		k, ok, err := s.takeNext(ms[n].Payload, &e, &ms[n].Traceparent)
		if !ok || err != nil {
			break
		}
		describe(&ms[n], &e, k)
		n++
	}
	s.passOn()
	r.mu.Unlock()
	return n, nil
}
