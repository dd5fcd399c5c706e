package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
)

// backend answers rdsctl: it is ctl.Backend. Its methods run on the sessions' goroutines
// and ask the engine.
type backend struct {
	d     *Daemon
	feeds *feeds // of the connection; nil: it can have none
}

// inspect asks the engine what it has.
func (b backend) inspect() engine.Inspector {
	return b.d.engine.Inspect(func(f func()) error { return b.d.loop.askFor(askTimeout, f) })
}

// Sockets lists the bound sockets by address and port.
func (b backend) Sockets() ([]ctl.SocketInfo, error) { return b.inspect().Sockets() }

// Unreceived lists the processes that have not received descriptors.
func (b backend) Unreceived() []ctl.Unreceived { return b.d.unreceived.listed() }

// Peers lists the connections.
func (b backend) Peers() ([]ctl.PeerInfo, error) {
	peers, err := b.inspect().Peers()
	var out []ctl.PeerInfo
	for i := range peers {
		peers[i].Why = b.d.transport.why(b.d.config(), &peers[i])
		out = append(out, peers[i].PeerInfo)
	}
	return out, err
}

// PeerReset breaks off the connections to addr, in all lanes and paths or one. They come back by
// themselves.
func (b backend) PeerReset(addr netip.Addr, lane, path *uint8) (int, error) {
	return b.inspect().PeerReset(addr, lane, path)
}

// Messages lists the messages of one queue or all.
func (b backend) Messages(v ctl.View, queue string) ([]ctl.MessageInfo, bool, error) {
	return b.inspect().Messages(v, queue)
}

// Keys lists the registered regions.
func (b backend) Keys(v ctl.View) ([]ctl.KeyInfo, bool, error) { return b.inspect().Keys(v) }

// Barriers lists the destinations with operations.
func (b backend) Barriers(v ctl.View) ([]ctl.BarrierInfo, bool, error) {
	return b.inspect().Barriers(v)
}

// Congested lists the congested ports.
func (b backend) Congested(v ctl.View) ([]ctl.CongestedInfo, bool, error) {
	return b.inspect().Congested(v)
}

// Backlog sums up what is in progress.
func (b backend) Backlog(v ctl.View) ([]ctl.BacklogInfo, bool, error) { return b.inspect().Backlog(v) }

// Stalls lists the connections that have something in progress or waiting.
func (b backend) Stalls() ([]ctl.StallInfo, error) { return b.inspect().Stalls() }

// Ping sends a message to port 0 of to's address and waits for the pong.
func (b backend) Ping(ctx context.Context, to *ctl.Ping) error {
	addr := to.Addr.Unmap()
	var err error
	pong := make(chan struct{}, 1)
	failed := make(chan error, 1)
	var p *engine.Ping
	start := time.Now()
	// Posted behind the ping, so that the ping ends even if the wait for the engine
	// is given up.
	defer b.d.engine.Do(func() {
		if p != nil {
			p.End()
		}
	})
	if askErr := b.d.loop.ask(ctx, func() { p, err = b.d.engine.Ping(addr, to.Path, to.Size, pong, func(err error) { failed <- err }) }); askErr != nil {
		return askErr
	}
	if err != nil {
		return err
	}
	select {
	case <-pong:
		to.RTT = time.Since(start)
		return b.d.loop.ask(ctx, func() { to.Paths = p.Paths() })
	case err := <-failed:
		return fmt.Errorf("%v is not reached: %w", addr, err)
	case <-ctx.Done():
		if why := context.Cause(ctx); errors.Is(why, errReplaced) {
			return why
		}
		return fmt.Errorf("connection is %s: %w", b.stateOf(p), ctx.Err())
	case <-b.d.loop.done:
		return errShutdown
	}
}

// stateOf is the state of the connection that p goes by, with what is known to be wrong.
func (b backend) stateOf(p *engine.Ping) string {
	var i ctl.PeerInfo
	var ok bool
	var lost string
	if err := b.d.loop.askFor(askTimeout, func() {
		i, ok = p.Peer()
		lost = p.Lost()
	}); err != nil || !ok {
		return "unknown"
	}
	if lost != "" {
		return i.State + ", and " + lost
	}
	if i.LastError == "" {
		return i.State
	}
	return i.State + ", last error: " + i.LastError
}
