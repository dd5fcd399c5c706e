package rds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/attach"
)

// Reopened says what a Client lost when its daemon went away and it opened again at
// the next one. Everything that is not named goes on: sockets at their ports with
// their settings and deadlines, destinations, buffers with their contents.
//
// What happens to what was there:
//
//   - Datagrams that were delivered to a socket and not received stay in its queue,
//     ahead of those that come now. What the daemon had acknowledged and kept in its
//     own memory, because the process had no room, is lost. Nobody can count it.
//   - Datagrams that were sent and not acknowledged are counted in SocketLoss.Unacked. Each has
//     arrived once or not at all. None is sent again.
//   - Each operation has the status that the daemon had published, or Unknown. These
//     statuses are queued before Options.Reopen is called. No operation of the old
//     daemon touches local memory any more, so the high-water mark has passed them
//     all. Barrier ids go on.
//   - Zero-copy cookies of all messages have come back.
//   - What was known of destinations (congested, unreachable) is learned anew, and
//     those who wait for relief look again.
//   - Regions have new cookies. Regions for one use have ended, because nobody knows
//     whether they were used.
//   - Peers see another instance of this host's daemon: their destinations have lost
//     the sockets that they had met, and their grants.
type Reopened struct {
	Cause   error         // why the old session ended; it is ErrDaemonGone
	Outage  time.Duration // how long there was no daemon
	Sockets []SocketLoss  // the sockets that were open
	// Regions are the regions that were live. Region.Cookie returns the new cookie of a region,
	// or 0 if the region has ended. The error says why it has ended, or why a peer to which it
	// was exposed could not be granted it again. It is nil otherwise.
	Regions map[*Region]error
	// Buffers are the buffers that the next daemon does not take, and why. They count as freed.
	// Their memory stays mapped until the Client's Close.
	Buffers map[*Buffer]error

	dests []*dest // that were open
}

// SocketLoss says what one socket lost.
type SocketLoss struct {
	Socket *Socket
	// Err is nil if the socket is bound again. Otherwise the socket has ended, because
	// another process has its port (EADDRINUSE) or the daemon refuses the bind. Its
	// calls fail with Err once what it had received has been read. Close it.
	Err error
	// Unacked counts, by destination, the datagrams that had been sent and were not
	// acknowledged, those with operations included.
	Unacked map[netip.AddrPort]int
	Unknown int // operations whose completion is Unknown
}

// outage is the time between two daemons of a client. It is what Client.err points to,
// an error that no caller sees.
type outage struct {
	cause error
	since time.Time
	over  chan struct{} // closed when the client works again or has ended
}

func (o *outage) Error() string { return o.cause.Error() + "; opening again" }

const (
	reopenFirst = 5 * time.Millisecond // between two attempts, doubling
	reopenMost  = 500 * time.Millisecond
)

// watch notices the end of the control connection. Then it ends the client or opens
// it again.
func (c *Client) watch() {
	defer close(c.watched)
	for {
		select {
		case <-c.done:
			return
		case <-c.ctl.Gone():
			c.lost(goneError(c.ctl.Reason()))
		}
		o, is := c.state().(*outage)
		if !is {
			return
		}
		c.wait.suspend()
		r, err := c.reopen(o)
		if err != nil {
			c.fail(err)
			return
		}
		if r != nil {
			ctx, cancel := c.living()
			c.again(ctx, r)
			cancel()
			c.tell(r)
		}
	}
}

// lost notes that the daemon or the session has ended. Only the end of a daemon can be
// followed by another one.
func (c *Client) lost(err error) {
	if c.opts.Reopen == nil || !errors.Is(err, ErrDaemonGone) {
		c.fail(err)
		return
	}
	var o error = &outage{cause: err, since: time.Now(), over: make(chan struct{})}
	c.err.CompareAndSwap(nil, &o)
}

// state is Err, or an *outage while the client opens again.
func (c *Client) state() error {
	if p := c.err.Load(); p != nil {
		return *p
	}
	return nil
}

// attempt runs f, which makes control requests and notes their answers. The client is
// not changed over to another daemon meanwhile. The error is f's, or *outage. Attempts
// are not nested.
func (c *Client) attempt(f func() error) error {
	c.life.RLock()
	defer c.life.RUnlock()
	if err := c.state(); err != nil {
		return err
	}
	return f()
}

// control is attempt at the next daemon, too, as long as the client opens again. It
// waits for that until ctx ends.
func (c *Client) control(ctx context.Context, f func() error) error {
	for {
		err := c.attempt(f)
		o, is := err.(*outage)
		if !is {
			return err
		}
		select {
		case <-o.over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// atOnce is attempt for what needs no daemon if there is none: gone is done then, under the same
// protection.
func (c *Client) atOnce(f, gone func() error) error {
	c.life.RLock()
	defer c.life.RUnlock()
	err := c.state()
	if err == nil {
		err = f()
	}
	if _, is := err.(*outage); is {
		return gone()
	}
	return err
}

// reopen opens c again at the next daemon. It tries until a daemon takes the client, c
// is closed, or ReopenFor has passed. It returns nil and no error if c was closed.
func (c *Client) reopen(o *outage) (*Reopened, error) {
	ctx, cancel := c.living()
	defer cancel()
	if d := c.opts.ReopenFor; d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	var last error
	for pause := reopenFirst; ; pause = min(2*pause, reopenMost) {
		r, err := c.reopenOnce(ctx, o)
		switch {
		case c.ended():
			return nil, nil
		case err == nil:
			return r, nil
		case ctx.Err() != nil && last == nil:
			last = err
		case ctx.Err() != nil:
		case errors.Is(err, ErrVersion), errors.Is(err, ErrInvalid):
			return nil, fmt.Errorf("%w; the next daemon does not take the client: %w", o.cause, err)
		default:
			last = err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if c.ended() {
				return nil, nil
			}
			return nil, fmt.Errorf("%w; no daemon took the client within %v (Options.ReopenFor): %w", o.cause, c.opts.ReopenFor, last)
		}
	}
}

// living returns a context that ends with the client.
func (c *Client) living() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// ended reports that the client works no more and will not again.
func (c *Client) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// reopenOnce tries once. Nothing of c changes before the next daemon has granted
// everything, so a failure, such as the end of that daemon, leaves nothing behind.
func (c *Client) reopenOnce(ctx context.Context, o *outage) (*Reopened, error) {
	var way attach.Way
	if again := c.way.Again; again != nil {
		var err error
		if way, err = again(ctx); err != nil {
			return nil, err
		}
	}
	n, err := begin(ctx, c.opts, way)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = n.ctl.Close() })
	x := &successor{c: c, n: n, socks: map[*Socket]taken{}, bufs: map[*Buffer]taken{}, regions: map[*Region]taken{}}
	x.take()
	c.life.Lock()
	defer c.life.Unlock()
	x.reconcile()
	if x.gone == nil && !stop() {
		x.gone = ctx.Err()
	}
	var r *Reopened
	if x.gone == nil {
		r, x.gone = x.changeOver(o)
	}
	if x.gone != nil {
		stop()
		n.discard()
	}
	return r, x.gone
}

// again opens the destinations that were open, and grants again what was exposed. The
// next daemon's end leaves what is left of that to the next time, or to the sends. It
// does not wait for a daemon that does not answer once ctx has ended: Close waits for it.
func (c *Client) again(ctx context.Context, r *Reopened) {
	for _, d := range r.dests {
		// Something else in its way: then the next send opens it, or fails.
		_ = d.sock.openDest(context.Background(), d.to, func() bool { return d.sock.dests[d.to] == nil })
	}
	live := slices.DeleteFunc(slices.Collect(maps.Keys(r.Regions)), func(g *Region) bool { return g.Cookie() == 0 })
	slices.SortFunc(live, func(a, b *Region) int { return cmp.Compare(a.Cookie(), b.Cookie()) })
	for _, g := range live {
		for _, peer := range g.grantees() {
			err := untilDone(ctx, func() error {
				return c.attempt(func() error { return g.expose(ctx, peer) })
			})
			if _, away := err.(*outage); err != nil && !away && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
				r.Regions[g] = fmt.Errorf("expose to %v at the next daemon: %w", peer, err)
			}
		}
	}
}

// tell calls Options.Reopen, after all earlier calls of it have returned.
func (c *Client) tell(r *Reopened) {
	before, done := c.told, make(chan struct{})
	c.told = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		c.opts.Reopen(r)
	}()
}
