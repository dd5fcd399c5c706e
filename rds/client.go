package rds

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Client is one attachment of the process to the daemon of its host: the memory they
// share, and the sockets, buffers and regions made through it. Most processes need
// one. See [Open].
type Client struct {
	ctl  ipc.Control // guarded by life, as ring and bell are
	ring func()      // rings the daemon's doorbell
	bell shm.Waiter  // where the leader sleeps
	opts Options
	mem  mappings

	seg   *shm.Segment
	table *shm.Table
	tx    tx
	rx    rx
	wait  waiters
	waits patience
	give  giver

	binds sync.Mutex     // one Bind or Socket.Close at a time
	pins  sync.WaitGroup // uses of the memory outside the locks

	regions    regions
	polls      polls
	tellsAddrs bool // the daemon answers ipc.Addrs
	imports    bool // the daemon answers ipc.Import
	words      words
	bounces    bounces

	life    sync.RWMutex // held for writing while the client changes over to another daemon
	way     attach.Way
	buffers buffers
	watched chan struct{} // closed when watch has returned
	told    chan struct{} // closed when the last call of Options.Reopen has returned; watch's

	err  atomic.Pointer[error] // *outage: the client opens again
	done chan struct{}
	end  sync.Once
}

// Done returns a channel that is closed when the client has ended: by Close, by the
// daemon's end, or by the end of the session. Err then says which.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil while the client works, and while it opens again (Options.Reopen).
// Afterwards it returns ErrClosed, ErrDaemonGone if the daemon has ended, or
// ErrSession, with the reason, if the daemon has ended this session alone.
func (c *Client) Err() error {
	err := c.state()
	if _, is := err.(*outage); is {
		return nil
	}
	return err
}

// fail ends the client with err and wakes everybody who waits. Only the first error
// counts. The caller may hold any lock of this package except polls.mu and wait.mu.
func (c *Client) fail(err error) {
	for {
		p := c.err.Load()
		var o *outage
		if p != nil {
			if o, _ = (*p).(*outage); o == nil {
				break // it has ended before
			}
		}
		if c.err.CompareAndSwap(p, &err) {
			if o != nil {
				close(o.over)
			}
			close(c.done)
			break
		}
	}
	c.wait.notifyEverybody(wantAll)
	c.polls.ringAll()
}

// broken ends the client because the daemon broke the rules of the shared memory,
// and returns the error. If the daemon has ended the session before, the error is the daemon's
// reason: after the end the rings are emptied.
func (c *Client) broken(format string, args ...any) error {
	if x, is := c.ctl.(interface{ Ending() bool }); is && c.state() == nil && x.Ending() {
		<-c.ctl.Gone()
		if c.ctl.Reason() != nil {
			c.fail(goneError(c.ctl.Reason()))
			return c.Err()
		}
	}
	c.fail(fmt.Errorf("%w: the daemon broke the memory contract: %s", ErrSession, fmt.Sprintf(format, args...)))
	return c.Err()
}

// wakeNeeded reports whether the daemon sleeps and the caller has to ring it. The
// caller must then call ringDaemon. tx.mu or rx.mu is held, and the memory is in
// use.
func (c *Client) wakeNeeded() bool {
	if !shm.WakeNeeded(c.seg.DaemonAsleep()) {
		return false
	}
	c.pins.Add(1) // Close waits: the doorbell's descriptor must not be reused
	return true
}

func (c *Client) ringDaemon() {
	c.ring()
	c.pins.Done()
}

// call makes one control request. It is called in an attempt.
func (c *Client) call(req ipc.Request, fds ...int) (ipc.Response, []int, error) {
	resp, got, err := c.ctl.Call(req, fds)
	if err == nil {
		return resp, got, nil
	}
	select {
	case <-c.ctl.Gone():
		c.lost(goneError(c.ctl.Reason()))
		return nil, nil, c.state()
	default:
		return nil, nil, err
	}
}

// untilDone runs f, which makes a control request that may take long. If ctx ends
// first, f still runs, and its result is dropped.
func untilDone(ctx context.Context, f func() error) error {
	if ctx.Done() == nil {
		return f()
	}
	answer := make(chan error, 1)
	go func() { answer <- f() }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Bind makes a socket at ap. Port 0 takes a free port. It is a call to the daemon.
//
// The unspecified address 0.0.0.0 stands for the one IPv4 address of the daemon, and
// :: for its one IPv6 address. If the daemon has several, Bind fails with ErrInvalid
// and names them. A socket has one address, because peers answer to the address that
// a message came from.
//
// Errors: EADDRINUSE; EADDRNOTAVAIL if the address is not one of this host's daemon;
// ErrInvalid for multicast, broadcast and port 1; EACCES, the daemon's bind policy;
// ENOBUFS, the daemon's limit or the user's quota; ESHUTDOWN while the daemon is
// drained, which rdsctl daemon resume ends; ErrDaemonGone, ErrSession, ErrClosed;
// EOPNOTSUPP for the unspecified address, if the daemon is of a version that does not
// tell its addresses.
//
// Source: net/rds/bind.c rds_bind.
func (c *Client) Bind(ap netip.AddrPort) (*Socket, error) {
	ap = normal(ap)
	asked := ap
	if ap.Addr().IsUnspecified() {
		one, err := c.onlyAddr(ap.Addr().Is4())
		if err != nil {
			return nil, opErr("bind", asked, err)
		}
		ap = netip.AddrPortFrom(one, ap.Port())
	}
	if err := checkAddr(ap.Addr()); err != nil {
		return nil, opErr("bind", asked, err)
	}
	if ap.Port() == 1 {
		return nil, opErr("bind", ap, invalid("port 1 is reserved"))
	}
	var s *Socket
	err := c.control(context.Background(), func() (err error) {
		c.binds.Lock()
		defer c.binds.Unlock()
		s, err = c.bind(ap)
		return err
	})
	return s, opErr("bind", ap, err)
}

// bind asks the daemon for a socket. Messages for the socket may arrive before the
// answer.
func (c *Client) bind(ap netip.AddrPort) (s *Socket, err error) {
	c.rx.startBind()
	defer func() {
		if !c.rx.endBind(s) {
			s, err = nil, c.state()
		}
	}()
	resp, _, err := c.call(&ipc.Bind{Addr: ap.Addr(), Port: ap.Port(), RcvBuf: shm.DefaultBuf})
	if err != nil {
		return nil, err
	}
	ok, is := resp.(*ipc.BindOK)
	if !is {
		return nil, c.broken("answer %T to Bind", resp)
	}
	s = &Socket{c: c, handle: ok.Sock, local: normal(netip.AddrPortFrom(ok.Addr, ok.Port)), sndbuf: shm.DefaultBuf, rcvbuf: shm.DefaultBuf}
	return s, nil
}

// Close ends the client with its sockets, regions and buffers. Calls that wait fail
// with ErrClosed, and the memory of all Buffers is unmapped. The daemon withdraws
// the messages that were not sent. A second Close returns ErrClosed.
func (c *Client) Close() error {
	var first bool
	c.end.Do(func() {
		first = true
		c.fail(ErrClosed)
		<-c.watched // it changes the client over to no other daemon any more
		c.shut()
	})
	if !first {
		return opErr("close", netip.AddrPort{}, ErrClosed)
	}
	return nil
}

// shut ends all use of the memory, waits until nobody is using it, and unmaps it.
func (c *Client) shut() {
	c.wait.close()
	socks := c.rx.close()
	c.tx.close()
	for _, s := range socks {
		s.rdl.stop()
		s.wdl.stop()
	}
	_ = c.ctl.Close() // the daemon sees the end, whatever this returns
	c.pins.Wait()
	_ = c.bell.Close()
	c.mem.closeAll()
	c.buffers.closeAll()
}
