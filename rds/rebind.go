package rds

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Reopen attaches again, with the Options of c, after the daemon went away or ended
// the session. It tries until a daemon answers or ctx ends, and returns a new
// Client. Rebind then makes the sockets again. A Client with Options.Reopen does all of
// that by itself, keeps its handles, and ends only if no daemon takes it. Messages that were delivered to the
// sockets of c can still be read there. c has to be closed.
//
// Nothing else survives:
//
//   - Messages that were sent and not acknowledged may or may not have arrived.
//     None arrives twice.
//   - Operations without a status are to be treated as Unknown. The memory of
//     those above the high-water mark must be treated as in use until c is closed.
//   - Barrier ids start again at 1.
//   - Regions and their cookies have ended, and buffers belong to c. Make new ones
//     with the new Client and hand out new cookies.
//   - Peers treat the sockets as those of a restarted host.
//
// Errors: those of Open, except ErrNoDaemon; the context's, joined with the last of
// them; ErrInvalid if c works or was closed while it worked.
func (c *Client) Reopen(ctx context.Context) (*Client, error) {
	n, err := c.openNext(ctx)
	return n, opErr("reopen", netip.AddrPort{}, err)
}

func (c *Client) openNext(ctx context.Context) (*Client, error) {
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

// Rebind binds a socket at the address and port of old, a socket of an ended client.
// The new socket has old's settings: buffer limits, lane, SetFailUnreachable and
// notices. Deadlines, the poll descriptor and everything queued stay with old.
//
// Errors: those of Bind and SetRcvBuf; ErrInvalid if the client of old still works.
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
	s.failUnreachable.Store(old.failUnreachable.Load())
	kernelSocket{s}.SetCongMonitor(old.congMon.Load())
	old.c.tx.mu.Lock()
	lane, sndbuf := old.lane, old.sndbuf
	old.c.tx.mu.Unlock()
	old.c.rx.mu.Lock()
	unwanted := old.unwanted
	old.c.rx.mu.Unlock()
	c.tx.mu.Lock()
	s.lane, s.sndbuf = lane, sndbuf
	c.tx.mu.Unlock()
	c.rx.mu.Lock()
	s.unwanted = unwanted
	c.rx.mu.Unlock()
	return s, nil
}
