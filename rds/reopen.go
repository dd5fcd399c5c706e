package rds

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Reopen attaches anew, as Open did, after c has ended because the daemon went
// away or ended the session: it returns a new Client, and tries until a daemon
// answers or ctx ends. Rebind then makes the sockets anew. c is still what it
// was: what had been delivered to its sockets can be read, and it has to be
// closed.
//
// Nothing else survives. Messages sent and not acknowledged may or may not have
// arrived, none twice. Operations without a status are to be treated as
// Unknown, and the memory of those above the high-water mark as in use, until c
// is closed. Barrier ids start anew. Regions and their cookies have ended, and
// buffers belong to c: make new ones with the new Client and hand out new
// cookies. Peers take the sockets for those of a restarted host.
//
// Errors: those of Open but ErrNoDaemon; the context's, with the last of them;
// ErrInvalid if c works, or was closed while it did.
func (c *Client) Reopen(ctx context.Context) (*Client, error) {
	n, err := c.reopen(ctx)
	return n, opErr("reopen", netip.AddrPort{}, err)
}

const (
	reopenFirst = 5 * time.Millisecond // between two attempts, doubling
	reopenMost  = 500 * time.Millisecond
)

func (c *Client) reopen(ctx context.Context) (*Client, error) {
	switch err := c.Err(); {
	case err == nil:
		return nil, invalid("the client works")
	case errors.Is(err, ErrClosed):
		return nil, invalid("the client was closed")
	}
	var last error
	for pause := reopenFirst; ; pause = min(2*pause, reopenMost) {
		n, err := open(ctx, c.opts)
		if err == nil {
			return n, nil
		}
		over := ctx.Err()
		if over == nil && errors.Is(err, context.DeadlineExceeded) {
			over = context.DeadlineExceeded // the dial saw it a moment before ctx
		}
		if over != nil {
			return nil, errors.Join(over, last)
		}
		// Gone: it ended while we attached.
		if last = err; !errors.Is(err, ErrNoDaemon) && !errors.Is(err, ErrDaemonGone) && !errors.Is(err, ipc.ErrGone) {
			return nil, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, errors.Join(ctx.Err(), last)
		}
	}
}

// Rebind binds a socket at the address and port of old, a socket of an ended
// client, with its settings: buffer limits, lane, connected destination,
// non-blocking mode, SetFailUnreachable, linger, notices, congestion monitor and
// receive trace.
// Deadlines, poll descriptor and all that was queued stay with old. Errors as
// Bind and SetRcvBuf; ErrInvalid if the client of old works, for the port is
// then its own.
func (c *Client) Rebind(old *Socket) (*Socket, error) {
	s, err := c.rebind(old)
	return s, opErr("rebind", old.local, cause(err))
}

func (c *Client) rebind(old *Socket) (*Socket, error) {
	if old.c.Err() == nil {
		return nil, invalid("the socket's client works")
	}
	s, err := c.Bind(old.local)
	if err != nil {
		return nil, err
	}
	if n := old.RcvBuf(); n != shm.DefaultBuf {
		if err := s.SetRcvBuf(n); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	s.nonblock.Store(old.nonblock.Load())
	s.failUnreachable.Store(old.failUnreachable.Load())
	s.rxTrace.Store(old.rxTrace.Load())
	s.SetCongMonitor(old.congMon.Load())
	old.c.tx.mu.Lock()
	remote, lane, linger, sndbuf := old.remote, old.lane, old.linger, old.sndbuf
	old.c.tx.mu.Unlock()
	old.c.rx.mu.Lock()
	unwanted := old.unwanted
	old.c.rx.mu.Unlock()
	c.tx.mu.Lock()
	s.remote, s.lane, s.linger, s.sndbuf = remote, lane, linger, sndbuf
	c.tx.mu.Unlock()
	c.rx.mu.Lock()
	s.unwanted = unwanted
	c.rx.mu.Unlock()
	return s, nil
}
