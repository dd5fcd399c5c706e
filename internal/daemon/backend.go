package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/version"
)

// backend answers rdsctl (ctl.Backend). Its methods run on control goroutines
// and ask the engine.
type backend struct{ d *Daemon }

// ask runs f on the engine's goroutine and waits for it. After an error f has
// not run and never will.
func (d *Daemon) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	var taken atomic.Bool // by the engine, which runs f, or by the caller, who does not want it any more
	run := func() {
		if taken.CompareAndSwap(false, true) {
			f()
			close(done)
		}
	}
	if !d.e.Do(run) {
		return errShutdown
	}
	var err error
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		err = fmt.Errorf("the engine does not answer: %w", ctx.Err())
	case <-d.loopDone:
		err = errShutdown
	}
	if taken.CompareAndSwap(false, true) {
		return err
	}
	<-done
	return nil
}

const askTimeout = 5 * time.Second

func (b backend) ask(f func()) error { return b.askFor(askTimeout, f) }

func (b backend) askFor(timeout time.Duration, f func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return b.d.ask(ctx, f)
}

// inspect asks the engine what it has.
func (b backend) inspect() engine.Inspector { return b.d.e.Inspect(b.ask) }

// Sockets lists the bound sockets by address and port.
func (b backend) Sockets() ([]ctl.SocketInfo, error) { return b.inspect().Sockets() }

// Peers lists the connections.
func (b backend) Peers() ([]ctl.PeerInfo, error) {
	peers, err := b.inspect().Peers()
	var out []ctl.PeerInfo
	for i := range peers {
		peers[i].Why = b.d.whyBy(&peers[i])
		out = append(out, peers[i].PeerInfo)
	}
	return out, err
}

// PeerReset breaks off the connections to addr, in all lanes or one; they come
// back by themselves.
func (b backend) PeerReset(addr netip.Addr, lane *uint8) (int, error) {
	return b.inspect().PeerReset(addr, lane)
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

// Backlog sums up what is under way.
func (b backend) Backlog(v ctl.View) ([]ctl.BacklogInfo, bool, error) { return b.inspect().Backlog(v) }

// Stalls lists the connections that have something under way or waiting.
func (b backend) Stalls() ([]ctl.StallInfo, error) { return b.inspect().Stalls() }

// Status describes the daemon.
func (b backend) Status() (ctl.Status, error) {
	d := b.d
	s := ctl.Status{
		Version: version.String(),
		Socket:  d.config().Socket, Stats: d.config().Stats, CRC: string(d.config().CRC),
		Transports: d.transports(),
		Warnings:   d.warnings,
		Sandbox:    d.given,
	}
	if d.config().Metrics.Listen.IsValid() {
		s.Metrics = d.config().Metrics.Listen.String()
	}
	s.Congestion = d.congestion()
	s.TLS = d.tlsStatus()
	s.Warnings = append(slices.Clone(s.Warnings), d.tlsWarnings(time.Now())...)
	if t := d.drained.Load(); t != nil && *t != "" {
		s.Warnings = append(s.Warnings, *t)
	}
	for _, a := range d.config().Listen {
		s.Listen = append(s.Listen, netip.AddrPortFrom(a, d.config().Port))
	}
	snap := d.reader.Snapshot()
	s.Fill(&snap, time.Now())
	s.Memory.Limit, s.Memory.HeldLimit = d.config().Limits.MaxRegisteredBytes, d.config().Limits.MaxHeldBytes
	users, err := b.Users()
	if err != nil { // a stuck engine must not hide that it is stuck
		s.Warnings = append(slices.Clone(s.Warnings), "usage per user: "+err.Error())
	}
	s.Users = users
	return s, nil
}

// Ping sends an empty message to port 0 of addr and waits for the pong.
func (b backend) Ping(ctx context.Context, addr netip.Addr) (time.Duration, error) {
	d, e := b.d, b.d.e
	addr = addr.Unmap()
	var err error
	pong := make(chan struct{}, 1)
	failed := make(chan error, 1)
	var p *engine.Ping
	start := time.Now()
	// Posted behind the ping, so that it ends it even if the wait for the
	// engine is given up.
	defer d.e.Do(func() {
		if p != nil {
			p.End()
		}
	})
	if askErr := d.ask(ctx, func() { p, err = e.Ping(addr, pong, func(err error) { failed <- err }) }); askErr != nil {
		return 0, askErr
	}
	if err != nil {
		return 0, err
	}
	select {
	case <-pong:
		return time.Since(start), nil
	case err := <-failed:
		return 0, fmt.Errorf("%v is not reached: %w", addr, err)
	case <-ctx.Done():
		state := "unknown"
		peers, _ := b.inspect().Peers()
		for _, p := range peers {
			if p.Remote == addr {
				if state = p.State; p.LastError != "" {
					state += ", last error: " + p.LastError
				}
			}
		}
		return 0, fmt.Errorf("connection is %s: %w", state, ctx.Err())
	case <-d.loopDone:
		return 0, errShutdown
	}
}
