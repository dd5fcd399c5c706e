package loadgen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
)

// Params describe a measurement.
type Params struct {
	Mode     Mode
	Local    netip.Addr     // of this host's daemon
	Server   netip.AddrPort // zero for a server in this process
	Size     int            // bytes of a message or operation
	Depth    int            // outstanding per socket; with mode Rate, messages that are sent at once
	Sockets  int
	Rate     float64 // operations a second of all sockets, 0 for as many as possible
	WarmUp   time.Duration
	Duration time.Duration // 0 for no end
	Interval time.Duration // between lines, 0 for no lines
	Timeout  time.Duration // of the server's answers
	Verify   bool
	// OnInterval is called at the end of each interval.
	OnInterval func(i *Interval, end time.Duration)
}

// Errors of a measurement.
var (
	ErrNoServer = errors.New("nobody serves there")
	ErrRefused  = errors.New("the server refuses")
	ErrGone     = errors.New("the server is gone")
	ErrTimeout  = errors.New("no answer in time")
)

// run is a measurement in progress.
type run struct {
	env    Env
	p      Params
	hello  hello
	client *rds.Client
	caller *rpc.Caller
	socks  []*rds.Socket
	to     []netip.AddrPort
	cookie rds.Cookie
	rec    *recorder
	sent   atomic.Uint64 // messages that the server should receive
	start  time.Time     // of the open loop
	report Report

	all      context.Context
	fail     context.CancelCauseFunc
	sending  context.Context // ends when sending has to end
	stopSend context.CancelFunc
}

// Measure runs a measurement. An end of ctx ends the measurement and is no error. The
// report is nil if nothing was measured.
func Measure(ctx context.Context, env Env, p Params) (*Report, error) {
	r := &run{env: env, p: p, rec: newRecorder()}
	r.hello = hello{Version: env.speaks(), Mode: p.Mode, Verify: p.Verify, Sockets: p.Sockets, Size: p.Size, Depth: p.Depth, Sample: sampleOf(p.Size)}
	if err := r.hello.check(env.speaks()); err != nil {
		return nil, err
	}
	all, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	r.all, r.fail = all, cancel
	r.sending, r.stopSend = context.WithCancel(all)
	defer r.stopSend()
	if !p.Server.IsValid() {
		stop, err := r.serveHere(ctx)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	var err error
	if r.client, err = env.Open(ctx); err != nil {
		return nil, err
	}
	defer r.client.Close()
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	return r.measure(ctx)
}

// sampleOf is n such that in mode Rate the server answers every nth message of size.
func sampleOf(size int) int { return max(1, min(64, (64<<10)/max(size, 1))) }

// serveHere runs a server in this process.
func (r *run) serveHere(ctx context.Context) (stop func(), err error) {
	s, err := NewServer(ctx, Env{Open: r.env.Open, corrupt: r.env.corrupt}, netip.AddrPortFrom(r.p.Local, 0))
	if err != nil {
		return nil, err
	}
	r.p.Server = s.Addr()
	r.report.OneProcess = true
	serving, cancel := context.WithCancel(context.Background())
	var server sync.WaitGroup
	server.Go(func() {
		if err := s.Run(serving); err != nil {
			r.fail(err)
		}
	})
	return func() {
		cancel()
		server.Wait()
	}, nil
}

// begin binds the sockets and asks the server for a session.
func (r *run) begin(ctx context.Context) error {
	ctl, err := r.client.Bind(netip.AddrPortFrom(r.p.Local, 0))
	if err != nil {
		return err
	}
	if r.socks, err = bind(r.client, r.p.Local, &r.hello); err != nil {
		return err
	}
	r.caller = rpc.NewCaller(ctl, rpc.CallerOptions{})
	var w welcome
	err = r.call(ctx, callBegin, r.p.Timeout, &r.hello, &w)
	var reason rds.Reason
	at := r.p.Server
	switch {
	case errors.Is(err, rpc.ErrNoSocket):
		return fmt.Errorf("%w: no rdsctl bench -serve at %v", ErrNoServer, at)
	case errors.As(err, &reason):
		return fmt.Errorf("%w: %v: %v; is there a daemon (rdsctl ping %v)?", ErrTimeout, at, reason, at.Addr())
	case errors.Is(err, ErrTimeout):
		return fmt.Errorf("%w: %v said nothing within %v; is there a daemon (rdsctl ping %v), and rdsctl bench -serve of this release?", ErrTimeout, at, r.p.Timeout, at.Addr())
	case err != nil:
		return err
	case len(w.Ports) != r.p.Sockets:
		return fmt.Errorf("%w: it made %d sockets", ErrRefused, len(w.Ports))
	}
	for _, p := range w.Ports {
		r.to = append(r.to, netip.AddrPortFrom(at.Addr(), p))
	}
	r.cookie = rds.Cookie(w.Cookie)
	return nil
}

// call calls a method of the server. answer may be nil.
func (r *run) call(ctx context.Context, method string, limit time.Duration, body, answer any) error {
	until, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b, err := r.caller.Call(until, r.p.Server, method, encode(body))
	refused, answered := errors.AsType[*rpc.Error](err)
	switch {
	case answered:
		return fmt.Errorf("%w: %w", ErrRefused, refused)
	case err != nil && ctx.Err() == nil && until.Err() != nil:
		return fmt.Errorf("%w: %v", ErrTimeout, err)
	case err != nil || answer == nil:
		return err
	}
	return json.Unmarshal(b, answer)
}

// stayAlive calls the server until ctx or the measurement ends.
func (r *run) stayAlive(ctx context.Context) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := r.call(ctx, callAlive, silence, nil, nil)
		if ctx.Err() != nil {
			return
		}
		if wrong, is := errors.AsType[*rpc.Error](err); is {
			r.fail(wrong)
		} else if err != nil {
			r.fail(fmt.Errorf("%w: %w", ErrGone, err))
		}
	}
}

// finish waits for the operations in progress, then asks the server for its counts. quiet ends
// the signs of life: a server that ends the session knows of none any more.
func (r *run) finish(work *sync.WaitGroup, quiet func()) error {
	// Replies to messages that were sent are still checked.
	idle := make(chan struct{})
	go func() {
		work.Wait()
		close(idle)
	}()
	limit := time.NewTimer(r.p.Timeout)
	defer limit.Stop()
	select {
	case <-idle:
	case <-limit.C:
		return fmt.Errorf("%w: what was under way did not end within %v", ErrTimeout, r.p.Timeout)
	case <-r.all.Done():
	}
	if r.all.Err() != nil {
		return context.Cause(r.all)
	}
	rep := &r.report
	rep.Sent = r.sent.Load()
	quiet()
	var f final
	if err := r.call(r.all, callEnd, r.p.Timeout+finalWait, rep.Sent, &f); err != nil {
		return fmt.Errorf("the server's count: %w", err)
	}
	rep.Received = f.Received
	if !rep.OneProcess {
		rep.CPU.Server = &f.CPU
		if f.DaemonCPU >= 0 {
			rep.CPU.ServerDaemon = &f.DaemonCPU
		}
	}
	switch {
	case f.Wrong != "":
		return errors.New(f.Wrong)
	case f.Received != rep.Sent:
		return fmt.Errorf("%d messages sent, %d received", rep.Sent, f.Received)
	}
	return nil
}
