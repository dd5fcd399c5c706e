package rdstcp

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Port is the TCP port of RDS/TCP (kernel: RDS_TCP_PORT).
const Port = 16385

const (
	readBudget = 256 << 10 // bytes read from one connection in a Poll
	readBuf    = 128 << 10
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
	// System replaces the operating system's TCP. Timeout, Congestion, Allowed and Listen
	// are not used then.
	System System
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

// Net is the TCP connections of one owner. Only its owner's thread may use it.
type Net struct {
	opt   Options
	sys   System
	conns []*Conn // by descriptor
	ready []*Conn // connections with something to read
	spare []*Conn
	evs   [64]unix.EpollEvent
	buf   []byte
	tapOn *atomic.Uint32
	begun func(*Conn) (head []byte, in, out int)

	ctx  context.Context
	stop context.CancelFunc

	news    atomic.Bool
	mu      sync.Mutex
	waiting []dialed // guarded by mu
	ended   bool     // guarded by mu
	holds   int      // how many connections are held
	pause   pause
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
	n := &Net{opt: opt, sys: opt.System, buf: make([]byte, readBuf), tapOn: &off}
	if n.sys == nil {
		sys, err := openSockets(opt)
		if err != nil {
			return nil, err
		}
		n.sys = sys
	}
	if opt.Tap != nil {
		n.tapOn = opt.Tap.On()
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.mayDial()
	return n, nil
}

// FD becomes readable when Poll has something to do.
func (n *Net) FD() int { return n.sys.FD() }

// Listen accepts connections at addr from hosts that Options.Allowed permits.
func (n *Net) Listen(addr netip.Addr) error {
	return n.sys.Listen(n.ctx, netip.AddrPortFrom(addr, n.opt.Port), func(s Socket) {
		c := n.adopt(s)
		c.tap.passive = true
		n.leave(dialed{c: c})
	})
}

// Dial connects local to remote from a free source port that is lane modulo 8. If there is
// none, Dial takes any port, or fails with ErrPort if must is set. It returns at once.
// Handler.Dialed follows with ctx, which must not be nil.
func (n *Net) Dial(local, remote netip.Addr, lane int, must bool, ctx any) {
	n.dialing(1)
	n.sys.Dial(n.pause.dials, Attempt{local, netip.AddrPortFrom(remote, n.opt.Port), lane, must, n.opt.Rand()}, func(s Socket, err error) {
		d := dialed{ctx: ctx, err: err}
		if err == nil {
			d.c = n.adopt(s)
		}
		n.leave(d)
		n.dialing(-1)
	})
}

// adopt makes a connection. Any goroutine may call it.
func (n *Net) adopt(s Socket) *Conn {
	return &Conn{n: n, fd: s.FD, Local: s.Local, Remote: s.Remote, Chosen: s.Chosen}
}

// Busy reports that Poll has something to do although FD is not readable.
func (n *Net) Busy() bool { return len(n.ready) > 0 || n.news.Load() }

// Poll calls h for everything that happened and reports whether there was anything.
func (n *Net) Poll(h Handler) bool {
	news := n.news.Load()
	k := n.sys.Wait(n.evs[:])
	for i := range k {
		ev := &n.evs[i]
		if ev.Fd < 0 {
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

// add has Wait return events of c.
func (n *Net) add(c *Conn) error {
	for len(n.conns) <= c.fd {
		n.conns = append(n.conns, nil)
	}
	n.conns[c.fd] = c
	c.added = true
	return n.sys.Add(c.fd)
}

// read reads from c up to the budget. It returns true if there may be more.
func (n *Net) read(c *Conn, h Handler) bool {
	for sum := 0; sum < readBudget && !c.held; {
		dst := h.Want(c)
		if len(dst) > readBudget-sum {
			dst = dst[:readBudget-sum]
		}
		k, again, err := n.sys.Recv(c.fd, dst, n.buf)
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
		c.got += uint64(k)
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
	n.sys.Close()
}
