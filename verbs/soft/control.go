package soft

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// control is what the goroutines that set up and close connections share with the
// owner. Results go through a queue whose eventfd is in the owner's epoll.
type control struct {
	opt   *Options
	fd    int
	stats Stats // only the Handshake counters, atomically
	wg    sync.WaitGroup

	slots   *places // of incoming connections in set-up
	parting *places // of those that are turned away with a word

	pending atomic.Bool // results is not empty

	mu      sync.Mutex
	results []result
	conns   map[io.Closer]struct{} // closed by close
	dying   map[*os.File]struct{}  // lingering
	closed  bool
	cong    string
	congErr error
}

// result is the outcome of a set-up.
type result struct {
	typ           verbs.CMEventType // 0: request expired
	fd            int               // -1: none
	mpa           iwarp.MPA
	tls           *secure
	local, remote netip.AddrPort
	dial          *dialing
	request       []byte          // that was sent, if the device has a LateTap
	req           verbs.RequestID // expired
	segment       int             // of a request
	err           error
}

// failed is r with an outcome of p that is a failure.
//
//go:noinline
func (r result) failed(p verbs.ConnectParam, t verbs.CMEventType, err error) result {
	r.typ, r.err = t, fmt.Errorf("soft: %s: %w", route(p), err)
	return r
}

// dialing is a Connect in progress.
type dialing struct {
	qp     *qp
	cancel context.CancelFunc
}

func newControl(opt *Options) (*control, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &control{opt: opt, fd: fd, slots: newPlaces(opt.MaxHandshakes), parting: newPlaces(maxLinger / 2),
		conns: map[io.Closer]struct{}{}, dying: map[*os.File]struct{}{}}, nil
}

// spawn runs f in a goroutine for which close waits. It returns false after close.
func (c *control) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// own makes close close x. disown ends that. own returns false after close.
func (c *control) own(x io.Closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.conns[x] = struct{}{}
	}
	return !c.closed
}

func (c *control) disown(x io.Closer) {
	c.mu.Lock()
	delete(c.conns, x)
	c.mu.Unlock()
}

// post hands r to the owner.
func (c *control) post(r result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		closeFD(r.fd)
		return
	}
	c.results = append(c.results, r)
	c.pending.Store(true)
	ring(c.fd)
}

// take returns all results, for the owner, who looks again when it has cleared fd.
func (c *control) take() []result {
	if !c.pending.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.Store(false)
	r := c.results
	c.results = nil
	return r
}

func (c *control) close() {
	c.mu.Lock()
	c.closed = true
	for x := range c.conns {
		x.Close()
	}
	for f := range c.dying {
		_ = f.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_ = f.SetReadDeadline(time.Now()) // after what is written, close at once
	}
	for _, r := range c.results {
		closeFD(r.fd)
	}
	c.results = nil
	c.mu.Unlock()
	c.wg.Wait()
	unix.Close(c.fd)
}

func (c *control) congestion() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cong, c.congErr
}

// detach takes the descriptor of conn out of the runtime's poller, sets it up for
// the owner and closes conn.
func (c *control) detach(conn net.Conn) (int, error) {
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var dup error
	if err := raw.Control(func(f uintptr) {
		fd, dup = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return -1, err
	}
	if dup != nil {
		return -1, os.NewSyscallError("dup", dup)
	}
	keepAlive(fd)
	var congErr error
	if name := c.opt.Congestion; name != "" {
		congErr = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		if congErr != nil {
			congErr = fmt.Errorf("soft: TCP congestion control %q: %w", name, congErr)
		}
	}
	name, _ := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	c.mu.Lock()
	c.cong, c.congErr = name, congErr
	c.mu.Unlock()
	return fd, nil
}

// Keepalive of a connection on which nothing is sent, in seconds. A host that has started again
// answers the next probe with a reset. So a connection to a host that lost power ends within keepEvery
// of the host's return, while no message is on it that would be lost with it. A host that does not
// answer is given keepFor, as by the default of package net.
const (
	keepEvery = 5 // as RDS/TCP of the kernel
	keepFor   = 150
)

// keepAlive sets the keepalive of a connection. Without it the connection works, too.
func keepAlive(fd int) {
	for _, o := range [][3]int{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepEvery},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepEvery},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepFor / keepEvery},
	} {
		_ = unix.SetsockoptInt(fd, o[0], o[1], o[2])
	}
}

// readMPA reads one start-up frame. Its error is errTLSHere if the peer begins with
// TLS, and a *strangerError or the alert if a reply is none.
func (c *control) readMPA(conn *byteStream, reply bool) (iwarp.MPA, error) {
	b := make([]byte, iwarp.MPAHeaderLen, iwarp.MPAHeaderLen+iwarp.MaxMPAPrivate)
	if n, err := io.ReadFull(conn, b); err == io.ErrUnexpectedEOF && reply {
		return iwarp.MPA{}, noReply(b[:n])
	} else if err != nil {
		return iwarp.MPA{}, err
	}
	n, err := iwarp.MPALen(b, reply)
	if err != nil {
		if b[0] == 22 && b[1] == 3 { // a handshake record of TLS
			return iwarp.MPA{}, errTLSHere
		}
		if reply && errors.Is(err, iwarp.ErrMPAKey) {
			return iwarp.MPA{}, noReply(b)
		}
		return iwarp.MPA{}, err
	}
	b = b[:n]
	if _, err := io.ReadFull(conn, b[iwarp.MPAHeaderLen:]); err == io.EOF {
		return iwarp.MPA{}, io.ErrUnexpectedEOF
	} else if err != nil {
		return iwarp.MPA{}, err
	}
	if len(conn.buf) > 0 {
		return iwarp.MPA{}, errEarly
	}
	c.tap(conn, false, b)
	return iwarp.ParseMPA(b, reply)
}

func (c *control) tap(conn net.Conn, out bool, b []byte) {
	if c.opt.Tap != nil {
		c.opt.Tap.Stream(addrOf(conn.LocalAddr()), addrOf(conn.RemoteAddr()), out, b)
	}
}

func addrOf(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// connect runs one outgoing set-up to its end.
func (c *control) connect(ctx context.Context, d *dialing, p verbs.ConnectParam, req iwarp.MPA) {
	r := c.tryConnect(ctx, p, req)
	r.dial = d
	c.post(r)
}

func (c *control) tryConnect(ctx context.Context, p verbs.ConnectParam, req iwarp.MPA) result {
	r := result{fd: -1, local: p.Local, remote: p.Remote}
	fail := func(t verbs.CMEventType, err error) result { return r.failed(p, t, err) }
	failed := func(err error) result {
		if byPeer(err) {
			return fail(verbs.CMRejected, err)
		}
		return fail(verbs.CMConnectError, err)
	}
	tcp, err := dialerOf(p).DialContext(ctx, "tcp", p.Remote.String())
	if err != nil {
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EMFILE) {
			return fail(verbs.CMConnectError, err)
		}
		return fail(verbs.CMUnreachable, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	defer tcp.Close()
	r.local, r.remote = addrOf(tcp.LocalAddr()), addrOf(tcp.RemoteAddr())
	conn := &byteStream{Conn: tcp}
	cfg, err := c.tlsFor(r.remote.Addr())
	if err != nil {
		return fail(verbs.CMConnectError, err)
	}
	if cfg != nil {
		if err := c.secure(conn, cfg, true); err != nil {
			if no, why := noEnd(tcp, err); no {
				return fail(verbs.CMUnreachable, fmt.Errorf("no end of the TLS handshake: %w", why))
			}
			return failed(tlsFailure(err))
		}
		req.CRC = false // as summed has it
	}
	r.request = c.opt.rawMPA(&req)
	b := req.Append(nil)
	c.tap(conn, true, b)
	if _, err := conn.Write(b); err != nil {
		return fail(verbs.CMConnectError, err)
	}
	r.mpa, err = c.readMPA(conn, true)
	switch {
	case err != nil:
		if no, why := noEnd(tcp, err); no {
			return fail(verbs.CMUnreachable, fmt.Errorf("no MPA reply: %w", why))
		}
		return failed(replyFailure(err))
	case r.mpa.Reject && string(r.mpa.Private) == needsTLS:
		return fail(verbs.CMConnectError, errNeedsTLS)
	case r.mpa.Reject:
		r.typ = verbs.CMRejected
		r.err = fmt.Errorf("soft: %s: rejected: %w", route(p), unix.ECONNREFUSED)
		return r
	case r.mpa.Markers:
		atomic.AddUint64(&c.stats.HandshakeMarkers, 1)
	}
	fd, err := c.detach(tcp)
	if err != nil {
		return fail(verbs.CMConnectError, err)
	}
	r.tls = conn.tls
	r.fd, r.typ = fd, verbs.CMEstablished
	return r
}

func dialerOf(p verbs.ConnectParam) *net.Dialer {
	var d net.Dialer
	if p.Local.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(p.Local)
	}
	if p.MaxSegment > 0 {
		d.Control = func(_, _ string, c syscall.RawConn) error { return limitSegment(c, p.MaxSegment) }
	}
	return &d
}

// route returns a name for a connection that is to be made.
func route(p verbs.ConnectParam) string {
	if !p.Local.IsValid() {
		return fmt.Sprintf("connect to %v", p.Remote)
	}
	return fmt.Sprintf("connect %v to %v", p.Local, p.Remote)
}

func (c *control) refused() { atomic.AddUint64(&c.stats.HandshakeRefused, 1) }
