package rdstcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dialTimeout = 5 * time.Second
	portTries   = 16
	firstPort   = 32768 // the source ports tried begin here
	lastPort    = 60999

	// Like the kernel's (net/rds/tcp.c rds_tcp_keepalive). A silent peer is detected within
	// half a minute.
	keepIdle, keepInterval, keepCount = 5, 5, 5
)

// sockets is the System of the operating system.
type sockets struct {
	opt  Options
	ep   int
	bell int
	io   scratch
	wg   sync.WaitGroup
	lns  []net.Listener
}

// openSockets returns the errors of epoll_create and eventfd.
func openSockets(opt Options) (*sockets, error) {
	if opt.Listen == nil {
		opt.Listen = openTCP
	}
	s := &sockets{opt: opt}
	var err error
	if s.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if s.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = unix.EpollCtl(s.ep, unix.EPOLL_CTL_ADD, s.bell, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(s.bell)})
	}
	if err != nil {
		unix.Close(s.ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return s, nil
}

func (s *sockets) FD() int { return s.ep }

func (s *sockets) Wait(evs []unix.EpollEvent) int {
	k := epollWait(s.ep, evs)
	for i := range k {
		if int(evs[i].Fd) == s.bell {
			var b [8]byte
			_, _ = unix.Read(s.bell, b[:])
			evs[i].Fd = -1
		}
	}
	return k
}

func (s *sockets) Wake() {
	one := [8]byte{0: 1}
	_, _ = unix.Write(s.bell, one[:])
}

func (s *sockets) Listen(ctx context.Context, addr netip.AddrPort, accepted func(Socket)) error {
	ln, err := s.opt.Listen(ctx, addr)
	if err != nil {
		return err
	}
	s.lns = append(s.lns, ln)
	s.wg.Go(func() { s.accept(ctx, ln, accepted) })
	return nil
}

func openTCP(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", addr.String())
}

func (s *sockets) Dial(ctx context.Context, a Attempt, done func(Socket, error)) {
	s.wg.Go(func() { done(s.dial(ctx, a)) })
}

func (s *sockets) dial(ctx context.Context, a Attempt) (Socket, error) {
	const span = (lastPort - firstPort) / 8
	for i := uint64(0); ; i++ {
		port := uint16(0)
		switch {
		case i < portTries:
			port = uint16(firstPort + (a.Start+i*i)%span*8 + uint64(a.Lane))
		case a.Must:
			return Socket{}, ErrPort
		}
		d := net.Dialer{Timeout: dialTimeout, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.Local, port)), KeepAlive: -1}
		d.SetMultipathTCP(false)
		tc, err := d.DialContext(ctx, "tcp", a.Remote.String())
		if err == nil {
			c, err := s.adopt(tc)
			c.Chosen = port != 0
			return c, err
		}
		switch {
		case i == portTries:
			return Socket{}, err
		case errors.Is(err, syscall.EACCES): // the sandbox forbids to choose a port
			i = portTries - 1
		case !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EADDRNOTAVAIL):
			return Socket{}, err
		}
	}
}

// adopt takes the descriptor away from Go's runtime.
func (s *sockets) adopt(nc net.Conn) (c Socket, err error) {
	defer nc.Close()
	tc := nc.(*net.TCPConn)
	raw, err := tc.SyscallConn()
	if err != nil {
		return c, err
	}
	if err2 := raw.Control(func(fd uintptr) { c.FD, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) }); err2 != nil {
		return c, err2
	}
	if err != nil {
		return c, fmt.Errorf("dup: %w", err)
	}
	c.Local, c.Remote = addrOf(tc.LocalAddr()), addrOf(tc.RemoteAddr())
	s.setOptions(c.FD)
	return c, nil
}

func addrOf(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// setOptions sets the options that the kernel's rds_tcp sets. It also limits how long data
// may stay unacknowledged, which the kernel does not. A failure is ignored: the connection
// works without the option.
func (s *sockets) setOptions(fd int) {
	for _, o := range []struct{ level, opt, val int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepIdle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepInterval},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(s.opt.Timeout.Milliseconds())},
	} {
		_ = unix.SetsockoptInt(fd, o.level, o.opt, o.val)
	}
	if s.opt.Congestion != "" {
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, s.opt.Congestion)
	}
}

func (s *sockets) Add(fd int) error {
	return unix.EpollCtl(s.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: int32(fd)})
}

func (s *sockets) Send(fd int, pieces [][]byte) (n, want int, err error) {
	return s.io.send(fd, pieces)
}

func (s *sockets) Recv(fd int, a, b []byte) (n int, again bool, err error) {
	return s.io.recv(fd, a, b)
}

func (s *sockets) Unacked(fd int) (int, error) { return outq(fd) }

func (s *sockets) Unread(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCINQ) }

func (s *sockets) Finish(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) }

func (s *sockets) End(fd int, abort bool) {
	if abort {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	unix.Close(fd)
}

func (s *sockets) Close() {
	for _, ln := range s.lns {
		ln.Close()
	}
	s.wg.Wait()
	unix.Close(s.bell)
	unix.Close(s.ep)
}
