package daemon

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// gate decides when connections are accepted, for all listening sockets at once. It is shut
// at first. While it is shut, connections wait in the kernel's queues.
type gate struct {
	mu     sync.Mutex
	change *sync.Cond // of the fields below, which mu guards
	isOpen bool
	within int // calls of Accept that may still return a connection
	socks  map[deadliner]struct{}
}

// deadliner is what a gate needs of a listening socket.
type deadliner interface{ SetDeadline(time.Time) error }

func newGate() *gate {
	g := &gate{socks: map[deadliner]struct{}{}}
	g.change = sync.NewCond(&g.mu)
	return g
}

// open has connections accepted.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.socks {
		_ = s.SetDeadline(time.Time{})
	}
	g.isOpen = true
	g.change.Broadcast()
}

// shut ends that connections are accepted. When it returns, no Accept returns a connection
// any more until the gate is opened.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isOpen = false
	for s := range g.socks {
		_ = s.SetDeadline(time.Unix(1, 0))
	}
	for g.within > 0 {
		g.change.Wait()
	}
}

// acceptor is a listening socket whose connections are of type C.
type acceptor[C any] interface {
	deadliner
	Accept() (C, error)
	Addr() net.Addr
	SyscallConn() (syscall.RawConn, error)
	Close() error
}

// gated is a listening socket behind a gate.
type gated[C any] struct {
	acceptor[C]
	gate       *gate
	closed     bool // guarded by gate.mu
	supervised bool // the supervisor opened the socket and keeps it open
}

func newGated[C any](g *gate, l acceptor[C], supervised bool) *gated[C] {
	s := &gated[C]{acceptor: l, gate: g, supervised: supervised}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.socks[l] = struct{}{}
	return s
}

// Accept waits until the gate is open, and then for a connection. After Close its error is
// net.ErrClosed.
func (s *gated[C]) Accept() (got C, err error) {
	err = s.AcceptTo(func(c C) { got = c })
	return got, err
}

// AcceptTo does what Accept does, and passes the connection to f. The gate is not shut before
// f has returned, so whoever has shut it finds what f did with the connection.
func (s *gated[C]) AcceptTo(f func(C)) error {
	for {
		s.enter()
		c, err := s.acceptor.Accept()
		if err == nil {
			f(c)
		}
		s.leave()
		if !errors.Is(err, os.ErrDeadlineExceeded) { // which the gate has set
			return err
		}
	}
}

// enter waits until the gate is open or the socket is closed.
func (s *gated[C]) enter() {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	for !s.gate.isOpen && !s.closed {
		s.gate.change.Wait()
	}
	s.gate.within++
}

func (s *gated[C]) leave() {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	s.gate.within--
	s.gate.change.Broadcast()
}

// Close closes the socket, so that every Accept returns.
func (s *gated[C]) Close() error {
	err := s.acceptor.Close() // first: nothing is accepted once closed lets Accept pass
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	s.closed = true
	delete(s.gate.socks, s.acceptor)
	s.gate.change.Broadcast()
	return err
}
