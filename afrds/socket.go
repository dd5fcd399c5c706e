package afrds

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rds"
)

// Socket is an AF_RDS socket. Its methods may be called from many goroutines at
// once. A call that waits does not block other calls.
type Socket struct {
	k        *Kernel
	nonblock atomic.Bool
	isBound  chan struct{} // closed by the bind that succeeded

	mu     sync.Mutex // guards what follows
	closed bool
	rs     *rds.Socket // nil before bind
	bound  address
	peer   address // family 0: not connected

	intr context.Context // of the calls that wait now
	stop context.CancelFunc

	opts  options
	tos   uint8                // as SIOCRDSGETTOS tells
	mrs   map[uint32]mr        // by key
	ops   map[uint64]pendingOp // by the token rds knows
	token uint64
	// Taken over from rds and not received yet.
	status    cmsg.Notify
	hasStatus bool
	cong      uint64 // relieved ports, as a mask

	armed map[netip.Addr]uint64 // barriers poll waits for
	trace cmsg.RxTraceOption
	// Destinations whose congestion this socket met without the monitor, for
	// poll to tell when it is over.
	congested map[netip.AddrPort]struct{}
	polled    bool       // PollFD was called
	repolls   sync.Mutex // one repoll at a time; taken before mu
}

// pendingOp is an operation whose status is still to come.
type pendingOp struct {
	token  uint64 // the application's
	notify bool   // RDS_RDMA_NOTIFY_ME; else RDS_RECVERR
}

func newSocket(k *Kernel) *Socket {
	s := &Socket{k: k, isBound: make(chan struct{}), opts: defaultOptions(),
		mrs: map[uint32]mr{}, ops: map[uint64]pendingOp{}, armed: map[netip.Addr]uint64{},
		congested: map[netip.AddrPort]struct{}{}}
	s.intr, s.stop = context.WithCancel(context.Background())
	return s
}

// SetNonblock sets or clears O_NONBLOCK.
func (s *Socket) SetNonblock(on bool) { s.nonblock.Store(on) }

// Interrupt ends the calls that wait on the socket now with EINTR, as a signal
// without SA_RESTART does.
func (s *Socket) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	if !s.closed {
		s.intr, s.stop = context.WithCancel(context.Background())
	}
}

// waiting returns a context for one call that waits for at most d; 0 sets no limit.
func (s *Socket) waiting(d time.Duration) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d == 0 {
		return s.intr, func() {}
	}
	return context.WithTimeout(s.intr, d)
}

// socket returns the bound socket, or nil before bind. EBADF: the socket is closed.
func (s *Socket) socket() (*rds.Socket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, syscall.EBADF
	}
	return s.rs, nil
}

// boundSocket is socket; ENOTCONN before bind.
func (s *Socket) boundSocket() (*rds.Socket, error) {
	rs, err := s.socket()
	if err == nil && rs == nil {
		err = syscall.ENOTCONN
	}
	return rs, err
}

// Bind is bind(2). EINVAL: a short or malformed address, an address that no socket
// can have, port 1, or a second bind. EADDRNOTAVAIL: not an address of this host's
// daemon; ENOPROTOOPT instead if SO_RDS_TRANSPORT was chosen. EADDRINUSE: the port
// is taken, or no port is free. ENOBUFS, EACCES: the limits and rules of the daemon.
//
// Source: net/rds/bind.c rds_bind.
func (s *Socket) Bind(addr []byte) error {
	a, err := parse(addr, syscall.EINVAL)
	if err != nil {
		return err
	}
	if !unicast(a.ip) || a.needsScope() {
		return syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return syscall.EBADF
	case s.rs != nil:
		return syscall.EINVAL
	case s.peer.scope != 0 && s.peer.scope != a.scope:
		return syscall.EINVAL
	}
	rs, err := s.k.c.Bind(a.addrPort())
	if err != nil {
		e := errno(err)
		if e == syscall.EADDRNOTAVAIL && s.opts.transport != cmsg.TransportNone {
			e = syscall.ENOPROTOOPT
		}
		return e
	}
	if err := s.applyOptions(rs); err != nil {
		_ = rs.Close() // never seen by anybody
		return errno(err)
	}
	if s.opts.transport == cmsg.TransportNone {
		s.opts.transport = cmsg.TransportIB
		if a.ip.IsLoopback() {
			s.opts.transport = transportLoop
		}
	}
	a.port = rs.LocalAddrPort().Port()
	s.rs, s.bound = rs, a
	close(s.isBound)
	return nil
}

// Connect is connect(2). It sets the destination of sends that name none; it sends
// nothing and filters nothing. EINVAL: a short address, multicast, broadcast, or a
// link-local address without a scope or with another scope than that of the bound
// address. EDESTADDRREQ: 0.0.0.0. EPROTOTYPE: an IPv6 address that is not unicast.
// EAFNOSUPPORT: another family.
//
// Source: net/rds/af_rds.c rds_connect.
func (s *Socket) Connect(addr []byte) error {
	a, err := parse(addr, syscall.EAFNOSUPPORT)
	if err != nil {
		return err
	}
	switch {
	case unicast(a.ip):
	case a.family == syscall.AF_INET6:
		return syscall.EPROTOTYPE
	case a.ip.IsUnspecified():
		return syscall.EDESTADDRREQ
	default:
		return syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return syscall.EBADF
	case a.needsScope(), s.otherScope(&a):
		return syscall.EINVAL
	}
	s.peer = a
	return nil
}

// otherScope reports whether a has another scope than the bound address.
func (s *Socket) otherScope(a *address) bool {
	return s.rs != nil && s.bound.scope != 0 && a.scope != 0 && a.scope != s.bound.scope
}

// Getsockname is getsockname(2). The name of an unbound socket is all zero: 16 bytes
// of family AF_UNSPEC, or of the family and length of the connected address.
func (s *Socket) Getsockname() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, syscall.EBADF
	case s.rs != nil:
		return encodeSockaddr(s.bound.addrPort(), s.bound.scope), nil
	case s.peer.family == 0:
		return make([]byte, sockaddr4Len), nil
	case s.peer.ip.Is4():
		return encodeSockaddr(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), 0), nil
	}
	return encodeSockaddr(netip.AddrPortFrom(netip.IPv6Unspecified(), 0), 0), nil
}

// Getpeername is getpeername(2). ENOTCONN: the socket is not connected.
func (s *Socket) Getpeername() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, syscall.EBADF
	case s.peer.family == 0:
		return nil, syscall.ENOTCONN
	}
	return encodeSockaddr(s.peer.addrPort(), s.peer.scope), nil
}

// Listen is listen(2). It returns EOPNOTSUPP.
func (s *Socket) Listen(backlog int) error { return syscall.EOPNOTSUPP }

// Accept is accept(2). It returns EOPNOTSUPP.
func (s *Socket) Accept() error { return syscall.EOPNOTSUPP }

// Shutdown is shutdown(2). It returns EOPNOTSUPP.
func (s *Socket) Shutdown(how int) error { return syscall.EOPNOTSUPP }

// Close is close(2). It does not linger: messages that were not sent are lost
// without a notice. The port is free at once, and calls that wait end with EBADF.
// EBADF: the socket was closed before.
//
// Source: net/rds/af_rds.c rds_release.
func (s *Socket) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return syscall.EBADF
	}
	s.closed = true
	rs := s.rs
	s.stop()
	s.mu.Unlock()
	s.k.forget(s)
	if rs == nil {
		return nil
	}
	return errno(rs.Close())
}

// patience returns the context of a call with these flags, which waits for at most limit.
func (s *Socket) patience(flags int, limit *timeout) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	t := *limit
	s.mu.Unlock()
	if flags&syscall.MSG_DONTWAIT != 0 || s.nonblock.Load() || t.poll {
		return rds.DontWait, func() {}
	}
	return s.waiting(t.d)
}

// waited returns the errno of a call that waited as ctx says.
func (s *Socket) waited(ctx context.Context, err error) error {
	if err != nil && ctx != rds.DontWait && errors.Is(err, ctx.Err()) {
		return s.ended(ctx)
	}
	return errno(err)
}

// ended returns the errno of a wait that ctx ended: EBADF after Close, else EINTR or
// ETIMEDOUT.
func (s *Socket) ended(ctx context.Context) error {
	if _, err := s.socket(); err != nil {
		return err
	}
	return errno(ctx.Err())
}
