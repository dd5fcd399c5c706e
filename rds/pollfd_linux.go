package rds

import (
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/shm"
)

// PollFD returns a descriptor for poll(2), epoll(7) and the like. It is readable while a
// condition of w holds, and once the client has ended. A later call chooses another set:
// SendSpace and SendTo hold nearly always, so add them when a send has failed, and remove
// them when it has succeeded. The slices of w must not change afterwards.
//
// Edge-triggered use: every message, completion and so on that arrives makes an
// edge, and so does every other condition when it begins to hold. There may be edges
// without a cause.
//
// Level-triggered use: the descriptor becomes unreadable when the last thing that
// can be taken is taken. The conditions of sending and of single operations are
// checked when news of them arrives, and when a call with DontWait has to fail. So a loop
// that sends until a send fails, or calls Wait until it fails, leaves the descriptor unreadable.
//
// The descriptor belongs to the socket and is the same at every call: do not read,
// write or close it. Close makes it readable a last time and closes it. While a
// client has such descriptors, one of its goroutines serves them, and every arrival
// costs a system call. It never blocks. Errors, which leave the set as it is: ErrInvalid as in
// Wait; EMFILE, ENFILE, ENOMEM; ErrClosed.
//
// Source: the poll conditions of RDS; net/rds/af_rds.c rds_poll.
func (s *Socket) PollFD(w WaitSet) (int, error) {
	fd, err := s.pollFD(w)
	return fd, opErr("poll", s.local, err)
}

func (s *Socket) pollFD(w WaitSet) (fd int, err error) {
	if w.empty() {
		return -1, invalid("nothing to poll for")
	}
	if _, err := s.ready(&w, false); err != nil {
		return -1, err
	}
	r := &s.c.rx
	r.mu.Lock()
	if s.closed.Load() {
		r.mu.Unlock()
		return -1, ErrClosed
	}
	if s.poll == nil {
		if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			r.mu.Unlock()
			return -1, err
		}
		s.poll = &pollFD{fd: fd}
		s.c.polls.add(s.c, s.poll)
	}
	fd, s.pollFor = s.poll.fd, w
	s.watchPoll()
	r.mu.Unlock()
	s.pollLook()
	return fd, nil
}

// pollFD is one socket's descriptor.
type pollFD struct {
	mu  sync.Mutex
	fd  int // -1: closed
	set bool

	look sync.Mutex // one look at a time
	w    *waiter    // for what has to be looked at, nil: nothing; guarded by rx.mu
}

// ring makes the descriptor readable. If it was readable, that is a new edge.
func (p *pollFD) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd >= 0 {
		shm.Ring(p.fd)
		p.set = true
	}
}

// quiet makes the descriptor unreadable.
func (p *pollFD) quiet() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd >= 0 && p.set {
		shm.ClearBell(p.fd)
		p.set = false
	}
}

func (p *pollFD) readable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set
}

func (p *pollFD) close() {
	p.ring()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.Close(p.fd)
	p.fd = -1
}

// idle reports that nothing of the poll set waits to be taken. rx.mu is held.
func (s *Socket) idle() bool {
	w := &s.pollFor
	return !(w.Message && s.unread() || w.Completion && s.comps.len() > 0 || w.Notice && s.notices.len() > 0 ||
		w.ZeroCopy && s.zcDone.len() > 0 || w.congestion && s.cong.update != 0)
}

// arrived makes the descriptor readable if the poll set has one of in, which was
// queued. rx.mu is held.
func (s *Socket) arrived(in interest) {
	if s.poll != nil && s.pollFor.taken()&in != 0 {
		s.poll.ring()
	}
}

// left makes the descriptor readable for what its receiver leaves of a run. If the
// receiver has taken the run from the event ring, the run never arrived in a queue. rx.mu
// is held.
func (s *Socket) left() {
	if s.poll != nil && !s.poll.readable() {
		s.arrived(wantMessage)
	}
}

// taken is called after everything that was taken from the queues, and makes the
// descriptor unreadable if nothing is left. rx.mu is held.
func (s *Socket) taken() {
	switch {
	case s.poll == nil || !s.idle():
	case s.poll.w != nil:
		if s.poll.readable() {
			s.c.wait.lookAt(s.poll.w)
		}
	default:
		s.poll.quiet()
		if s.err() != nil {
			s.poll.ring() // whoever polls must see the end
		}
	}
}

// closePollFD closes the descriptor, if there is one. rx.mu is held.
func (s *Socket) closePollFD() {
	if s.poll != nil {
		s.c.wait.unwatch(s.poll.w)
		s.poll.w = nil
		s.pollLooks.Store(false)
		s.c.polls.remove(s.poll)
		s.poll.close()
		s.poll = nil
	}
}

// polls are a client's descriptors, and the goroutine that leads while nobody
// who waits in a call does.
//
// Lock order: mu is behind rx.mu and before wait.mu.
type polls struct {
	mu     sync.Mutex
	fds    map[*pollFD]struct{}
	keeper *Socket // no socket, a place to wait: nil without descriptors
}

func (p *polls) add(c *Client, fd *pollFD) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fds == nil {
		p.fds = map[*pollFD]struct{}{}
	}
	p.fds[fd] = struct{}{}
	if p.keeper == nil {
		p.keeper = &Socket{c: c, local: netip.AddrPort{}}
		go p.keeper.keep()
	}
}

func (p *polls) remove(fd *pollFD) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.fds, fd)
	if len(p.fds) == 0 && p.keeper != nil {
		p.keeper.notifyAll(wantEnd)
	}
}

// none reports that there are no descriptors.
func (p *polls) none() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.fds) == 0
}

// over reports that there are no descriptors. The keeper then ends, and the next
// descriptor starts a new one. So there are never two keepers, which would take
// wake-ups from each other.
func (p *polls) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.fds) > 0 {
		return false
	}
	p.keeper = nil
	return true
}

// ringAll makes all descriptors readable, because the client has ended.
func (p *polls) ringAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for fd := range p.fds {
		fd.ring()
	}
}

// keep waits, and thereby looks after the rings, until the last descriptor or the
// client is closed. It checks the poll sets for which something has come in.
func (s *Socket) keep() {
	ws := &s.c.wait
	for {
		w := s.enter(wantEnd|wantZeroCopy, true)
		s.c.tx.poll() // a leader that sleeps for events alone was not rung for what came back before
		if ws.keeps(w) && !s.c.polls.none() && s.c.Err() == nil {
			s.c.park(w)
		}
		dirty := ws.keepsNot(w)
		ws.leave(w)
		for _, p := range dirty {
			p.pollLook()
		}
		if s.c.Err() != nil || s.c.polls.over() {
			return
		}
	}
}
