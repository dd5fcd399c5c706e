package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/stress/proto"
)

// control is the TCP connection between the two sides.
type control struct {
	conn *net.TCPConn
	once sync.Once
}

func (c *control) close() { c.once.Do(func() { c.conn.Close() }) }

// closed returns a channel that is closed when the peer ends the connection or sends
// anything: after the go-ahead there is nothing more to send.
func (c *control) closed() <-chan struct{} {
	ch := make(chan struct{})
	go func() {
		defer close(ch)
		var b [1]byte
		_, _ = c.conn.Read(b[:])
	}()
	return ch
}

// guard ends reads and writes when ctx ends. The caller has to call stop before it uses the
// connection further.
func (c *control) guard(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Now()) })
}

// ready tells the peer that the tasks here are ready, and waits until the peer's are.
func (c *control) ready(ctx context.Context, active bool) error {
	stop := c.guard(ctx)
	defer stop()
	send := func() error {
		_, err := c.conn.Write([]byte{0})
		return err
	}
	receive := func() error {
		_, err := io.ReadFull(c.conn, make([]byte, proto.GoSize))
		return err
	}
	steps := []func() error{receive, send}
	if active {
		steps = []func() error{send, receive}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
				return fmt.Errorf("the peer ended before the test began; its own messages say why: %w", err)
			}
			return fmt.Errorf("control connection: %w", err)
		}
	}
	return nil
}

// connect is the active side: it connects and sends its options.
func (t *test) connect(ctx context.Context) error {
	t.opts = t.params.Options
	to := netip.AddrPortFrom(t.params.Send.Unmap(), t.opts.Port)
	t.peer = to.Addr()
	if !t.peer.Is4() || t.params.Recv.IsValid() && !t.params.Recv.Unmap().Is4() {
		return fmt.Errorf("%w: rds-stress's protocol has IPv4 addresses only", proto.ErrOptions)
	}
	if err := t.opts.Check(); err != nil {
		return err
	}
	t.say("connecting to %v", to)
	conn, err := t.dial(ctx, to)
	if err != nil {
		return err
	}
	t.ctl = &control{conn: conn}
	t.local = t.params.Recv.Unmap()
	if !t.local.IsValid() {
		t.local = addrOf(conn.LocalAddr())
	}
	t.opts.SendAddr, t.opts.ReceiveAddr = t.peer.As4(), t.local.As4()
	stop := t.ctl.guard(ctx)
	defer stop()
	if _, err := conn.Write(t.opts.Append(nil)); err != nil {
		return fmt.Errorf("send the options to %v: %w", to, err)
	}
	return nil
}

// retryAfter is the time between two attempts to connect.
const retryAfter = time.Second

// dial connects. While nobody listens or there is no route to the host, it tries again as
// often as the options say.
func (t *test) dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	var d net.Dialer
	if t.params.Recv.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.params.Recv, 0))
	}
	for try := uint32(0); ; try++ {
		c, err := d.DialContext(ctx, "tcp4", to.String())
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		retry := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, syscall.ECONNREFUSED) && try >= t.opts.ConnectRetries:
			return nil, fmt.Errorf("%w; start rdsctl stress or rds-stress at %v without -s first, or wait for it with --connect-retries", err, to.Addr())
		case !retry || try >= t.opts.ConnectRetries:
			return nil, err
		}
		if try == 0 {
			t.say("%v: trying again every second", err)
		}
		timer := time.NewTimer(retryAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// listen is the passive side: it waits for one peer and reads its options.
func (t *test) listen(ctx context.Context) error {
	at := netip.AddrPortFrom(netip.IPv4Unspecified(), t.params.Options.Port)
	if t.params.Recv.IsValid() {
		at = netip.AddrPortFrom(t.params.Recv.Unmap(), at.Port())
	}
	if !at.Addr().Is4() {
		return fmt.Errorf("%w: rds-stress's protocol has IPv4 addresses only", proto.ErrOptions)
	}
	conn, err := t.accept(ctx, at)
	if err != nil {
		return err
	}
	t.ctl = &control{conn: conn}
	t.peer, t.local = addrOf(conn.RemoteAddr()), addrOf(conn.LocalAddr())
	t.say("accepted connection from %v on %v", conn.RemoteAddr(), conn.LocalAddr())
	stop := t.ctl.guard(ctx)
	defer stop()
	_ = conn.SetReadDeadline(time.Now().Add(t.env.Timing.Options))
	o, err := proto.ReadOptions(conn)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%v: %w", t.peer, err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The peer's addresses are the mirror of the ones here. The peer may have connected
	// from another address than its tasks are bound to.
	t.opts = *o
	t.peer = netip.AddrFrom4(o.ReceiveAddr)
	if t.peer.IsUnspecified() {
		return fmt.Errorf("%w: the peer's options do not name its address", proto.ErrOptions)
	}
	return nil
}

// accept accepts one connection at at and refuses all others.
func (t *test) accept(ctx context.Context, at netip.AddrPort) (*net.TCPConn, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", at.String())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if t.env.listening != nil {
		t.env.listening(addrPortOf(l.Addr()))
	}
	t.say("waiting for incoming connection on %v", l.Addr())
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	c, err := l.Accept()
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func addrPortOf(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
func addrOf(a net.Addr) netip.Addr         { return addrPortOf(a).Addr().Unmap() }
