package rds

import (
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/shm"
)

// PollFD returns a descriptor for poll(2), epoll(7) and the like. It is
// readable while a message, completion, notice, zero-copy cookie or congestion
// update waits to be taken, and once the client has ended; each one that
// arrives is a new edge, for edge-triggered users. It says nothing about send
// space: see Wait.
//
// The descriptor is the socket's, the same at every call: do not read, write or
// close it; Close makes it readable a last time and closes it. While a client
// has such descriptors, a goroutine of it looks after them, and each arrival at
// one costs a system call. Errors: EMFILE, ENFILE, ENOMEM; ErrClosed.
func (s *Socket) PollFD() (int, error) {
	fd, err := s.pollFD()
	return fd, opErr("poll", s.local, err)
}

func (s *Socket) pollFD() (int, error) {
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.closed.Load() {
		return -1, ErrClosed
	}
	if s.poll != nil {
		return s.poll.fd, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	s.poll = &pollFD{fd: fd}
	s.c.polls.add(s.c, s.poll)
	r.drain()
	if !s.idle() || s.c.Err() != nil {
		s.poll.ring()
	}
	return fd, nil
}

// pollFD is one socket's descriptor.
type pollFD struct {
	mu  sync.Mutex
	fd  int // -1: closed
	set bool
}

// ring makes the descriptor readable, and is a new edge if it was.
func (p *pollFD) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd >= 0 {
		shm.Ring(p.fd)
		p.set = true
	}
}

// quiet makes it unreadable.
func (p *pollFD) quiet() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd >= 0 && p.set {
		shm.Drain(p.fd)
		p.set = false
	}
}

func (p *pollFD) close() {
	p.ring()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.Close(p.fd)
	p.fd = -1
}

// idle reports that nothing waits to be taken. rx.mu is held.
func (s *Socket) idle() bool {
	return s.rxq.len() == 0 && s.comps.len() == 0 && s.notices.len() == 0 && s.zcDone.len() == 0 && s.cong.update == 0
}

// arrived tells who polls that something was queued. rx.mu is held.
func (s *Socket) arrived() {
	if s.poll != nil {
		s.poll.ring()
	}
}

// taken follows every taking. rx.mu is held.
func (s *Socket) taken() {
	if s.poll != nil && s.idle() {
		s.poll.quiet()
		if s.c.Err() != nil {
			s.poll.ring() // whoever polls must see the end
		}
	}
}

// closePollFD closes the descriptor, if there is one. rx.mu is held.
func (s *Socket) closePollFD() {
	if s.poll != nil {
		s.c.polls.remove(s.c, s.poll)
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
		p.keeper.wait.list.pick = socketLinks
		go p.keeper.keep()
	}
}

func (p *polls) remove(c *Client, fd *pollFD) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.fds, fd)
	if len(p.fds) == 0 && p.keeper != nil {
		p.keeper.closed.Store(true)
		p.keeper.notifyAll(wantEnd)
		p.keeper = nil
	}
}

// ringAll tells all who poll that the client has ended.
func (p *polls) ringAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for fd := range p.fds {
		fd.ring()
	}
}

// keep waits, and thereby looks after the rings, until the last descriptor or
// the client is closed.
func (s *Socket) keep() {
	for {
		w := s.enter(wantEnd|wantZeroCopy, true)
		if !s.closed.Load() && s.c.Err() == nil {
			s.c.park(w)
		}
		s.c.wait.leave(w)
		if s.closed.Load() || s.c.Err() != nil {
			return
		}
	}
}
