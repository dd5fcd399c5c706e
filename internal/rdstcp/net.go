package rdstcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Port is the TCP port of RDS/TCP (kernel: RDS_TCP_PORT).
const Port = 16385

const (
	readBudget  = 256 << 10 // bytes read from one connection in a Poll
	readBuf     = 128 << 10
	dialTimeout = 5 * time.Second
	portTries   = 16
	firstPort   = 32768 // the source ports tried begin here
	lastPort    = 60999

	// Like the kernel's (net/rds/tcp.c rds_tcp_keepalive). A silent peer is detected within
	// half a minute.
	keepIdle, keepInterval, keepCount = 5, 5, 5
)

// Options of a Net. The zero value of a field means its default.
type Options struct {
	Port       uint16        // of every host (16385)
	Timeout    time.Duration // how long a peer may leave data unacknowledged (30 s)
	Congestion string        // TCP congestion control, if the system permits it; "" for the system's
	// Allowed reports whether a host may connect. Any goroutine may call it. nil allows
	// all.
	Allowed func(netip.Addr) bool
	Rand    func() uint64 // for source ports; called on the owner's thread; nil for any source
	Tap     Tap           // nil: nobody sees the streams
	// Listen opens the listening sockets, whose connections are *net.TCPConn. The Net
	// closes them.
	Listen func(ctx context.Context, addr netip.AddrPort) (net.Listener, error)
}

// Handler is the owner of a Net. Poll calls it.
type Handler interface {
	// Accepted hands over a connection that a peer made.
	Accepted(c *Conn)
	// Dialed ends a Dial, with a connection or an error.
	Dialed(ctx any, c *Conn, err error)
	// Want returns where the next bytes of c go, and is then filled completely. If it
	// returns nil, the bytes go to Data.
	Want(c *Conn) []byte
	// Placed reports that n bytes were read into the memory that Want returned.
	Placed(c *Conn, n int)
	// Data hands over bytes. The Net reuses their memory afterwards.
	Data(c *Conn, b []byte)
	// Room reports that c takes bytes again after a Write that took fewer than all.
	Room(c *Conn)
	// Closed reports that nothing more will arrive. err is nil if the peer ended the
	// connection in order. The handler closes c.
	Closed(c *Conn, err error)
}

// Net is the TCP connections of one owner.
type Net struct {
	opt   Options
	ep    int
	bell  int
	conns []*Conn // by descriptor
	ready []*Conn // connections with something to read
	spare []*Conn
	evs   [64]unix.EpollEvent
	buf   []byte
	io    scratch
	tapOn *atomic.Uint32
	begun func(*Conn) (head []byte, in, out int)

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	news    atomic.Bool
	mu      sync.Mutex
	waiting []dialed // guarded by mu
	ended   bool     // guarded by mu
	holds   int      // how many connections are held
	pause   pause
	lns     []net.Listener
}

// New makes a Net. Its errors are those of epoll_create and eventfd.
func New(opt Options) (*Net, error) {
	if opt.Port == 0 {
		opt.Port = Port
	}
	if opt.Timeout == 0 {
		opt.Timeout = 30 * time.Second
	}
	if opt.Rand == nil {
		opt.Rand = func() uint64 { return 0 }
	}
	if opt.Listen == nil {
		opt.Listen = openTCP
	}
	n := &Net{opt: opt, buf: make([]byte, readBuf), tapOn: &off}
	if opt.Tap != nil {
		n.tapOn = opt.Tap.On()
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.mayDial()
	var err error
	if n.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if n.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = unix.EpollCtl(n.ep, unix.EPOLL_CTL_ADD, n.bell, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(n.bell)})
	}
	if err != nil {
		unix.Close(n.ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return n, nil
}

// FD becomes readable when Poll has something to do.
func (n *Net) FD() int { return n.ep }

// Listen accepts connections at addr from hosts that Options.Allowed permits.
func (n *Net) Listen(addr netip.Addr) error {
	ln, err := n.opt.Listen(n.ctx, netip.AddrPortFrom(addr, n.opt.Port))
	if err != nil {
		return err
	}
	n.lns = append(n.lns, ln)
	n.wg.Go(func() { n.accept(ln) })
	return nil
}

func openTCP(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", addr.String())
}

// Dial connects local to remote from a free source port that is lane modulo 8. If there is
// none, Dial takes any port, or fails with ErrPort if must is set. It returns at once.
// Handler.Dialed follows with ctx, which must not be nil.
func (n *Net) Dial(local, remote netip.Addr, lane int, must bool, ctx any) {
	start, until := n.opt.Rand(), n.pause.dials
	n.dialing(1)
	n.wg.Go(func() {
		c, err := n.dial(until, local, remote, lane, must, start)
		n.leave(dialed{ctx: ctx, c: c, err: err})
		n.dialing(-1)
	})
}

func (n *Net) dial(until context.Context, local, remote netip.Addr, lane int, must bool, start uint64) (*Conn, error) {
	const span = (lastPort - firstPort) / 8
	for i := uint64(0); ; i++ {
		port := uint16(0)
		switch {
		case i < portTries:
			port = uint16(firstPort + (start+i*i)%span*8 + uint64(lane))
		case must:
			return nil, ErrPort
		}
		d := net.Dialer{Timeout: dialTimeout, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, port)), KeepAlive: -1}
		d.SetMultipathTCP(false)
		tc, err := d.DialContext(until, "tcp", netip.AddrPortFrom(remote, n.opt.Port).String())
		if err == nil {
			c, err := n.adopt(tc)
			if err == nil {
				c.Chosen = port != 0
			}
			return c, err
		}
		switch {
		case i == portTries:
			return nil, err
		case errors.Is(err, syscall.EACCES): // the sandbox forbids to choose a port
			i = portTries - 1
		case !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EADDRNOTAVAIL):
			return nil, err
		}
	}
}

// adopt takes the descriptor away from Go's runtime.
func (n *Net) adopt(nc net.Conn) (*Conn, error) {
	defer nc.Close()
	tc := nc.(*net.TCPConn)
	raw, err := tc.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &Conn{n: n, fd: -1,
		Local:  tc.LocalAddr().(*net.TCPAddr).AddrPort(),
		Remote: tc.RemoteAddr().(*net.TCPAddr).AddrPort()}
	c.Local = netip.AddrPortFrom(c.Local.Addr().Unmap(), c.Local.Port())
	c.Remote = netip.AddrPortFrom(c.Remote.Addr().Unmap(), c.Remote.Port())
	if err2 := raw.Control(func(fd uintptr) { c.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) }); err2 != nil {
		return nil, err2
	}
	if err != nil {
		return nil, fmt.Errorf("dup: %w", err)
	}
	n.setOptions(c.fd)
	return c, nil
}

// setOptions sets the options that the kernel's rds_tcp sets. It also limits how long data
// may stay unacknowledged, which the kernel does not. A failure is ignored: the connection
// works without the option.
func (n *Net) setOptions(fd int) {
	for _, o := range []struct{ level, opt, val int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepIdle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepInterval},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(n.opt.Timeout.Milliseconds())},
	} {
		_ = unix.SetsockoptInt(fd, o.level, o.opt, o.val)
	}
	if n.opt.Congestion != "" {
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, n.opt.Congestion)
	}
}

// Busy reports that Poll has something to do although FD is not readable.
func (n *Net) Busy() bool { return len(n.ready) > 0 || n.news.Load() }

// Poll calls h for everything that happened and reports whether there was anything.
func (n *Net) Poll(h Handler) bool {
	news := n.news.Load()
	k := epollWait(n.ep, n.evs[:])
	for i := range k {
		ev := &n.evs[i]
		if int(ev.Fd) == n.bell {
			var b [8]byte
			_, _ = unix.Read(n.bell, b[:])
			continue
		}
		c := n.conns[ev.Fd]
		if c == nil {
			continue
		}
		if ev.Events&unix.EPOLLOUT != 0 && c.full {
			c.full = false
			h.Room(c)
		}
		if ev.Events&^unix.EPOLLOUT != 0 && c.fd >= 0 {
			c.ends = c.ends || ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
			n.wants(c)
		}
	}
	list := n.ready
	n.ready, n.spare = n.spare[:0], list
	for i, c := range list {
		list[i] = nil
		c.ready = false
		if c.held {
			c.more = true
			continue
		}
		if c.fd >= 0 && n.read(c, h) && c.fd >= 0 {
			n.wants(c)
		}
	}
	if news && k < len(n.evs) {
		n.takeNews(h)
	}
	return k > 0 || len(list) > 0
}

func (n *Net) wants(c *Conn) {
	if c.held {
		c.more = true
		return
	}
	if !c.ready {
		c.ready = true
		n.ready = append(n.ready, c)
	}
}

// add registers c with epoll, edge-triggered.
func (n *Net) add(c *Conn) error {
	for len(n.conns) <= c.fd {
		n.conns = append(n.conns, nil)
	}
	n.conns[c.fd] = c
	c.added = true
	return unix.EpollCtl(n.ep, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: int32(c.fd)})
}

// read reads from c up to the budget. It returns true if there may be more.
func (n *Net) read(c *Conn, h Handler) bool {
	for sum := 0; sum < readBudget && !c.held; {
		dst := h.Want(c)
		if len(dst) > readBudget-sum {
			dst = dst[:readBudget-sum]
		}
		k, again, err := n.io.recv(c.fd, dst, n.buf)
		switch {
		case again:
			return false
		case err != nil:
			h.Closed(c, err)
			return false
		case k == 0:
			h.Closed(c, nil)
			return false
		}
		if t := c.tapped(); t != nil {
			c.saw(t, false, dst[:min(k, len(dst))])
			c.saw(t, false, n.buf[:max(0, k-len(dst))])
		}
		if p := min(k, len(dst)); p > 0 {
			h.Placed(c, p)
		}
		if k > len(dst) && c.fd >= 0 {
			h.Data(c, n.buf[:k-len(dst)])
		}
		if c.fd < 0 || k < len(dst)+len(n.buf) && !c.ends {
			return false
		}
		sum += k
	}
	return true
}

// Close closes everything. Connections end in order, without a reset.
func (n *Net) Close() {
	n.mu.Lock()
	n.ended = true
	left := n.waiting
	n.waiting = nil
	n.mu.Unlock()
	n.stop()
	for _, ln := range n.lns {
		ln.Close()
	}
	n.wg.Wait()
	for _, d := range left {
		if d.c != nil {
			d.c.Close(true)
		}
	}
	for _, c := range n.conns {
		if c != nil {
			c.Close(false)
		}
	}
	unix.Close(n.bell)
	unix.Close(n.ep)
}
