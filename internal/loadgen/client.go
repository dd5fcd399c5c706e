package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/loadgen/proto"
	"github.com/rdsd/rdsd/rds"
)

// Params describe a measurement.
type Params struct {
	Mode     proto.Mode
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

// silence is how long the server may send nothing during a measurement.
const silence = 10 * time.Second

// run is a measurement in progress.
type run struct {
	env    Env
	p      Params
	hello  proto.Hello
	client *rds.Client
	ctl    *rds.Socket
	socks  []*rds.Socket
	to     []netip.AddrPort
	cookie rds.Cookie
	rec    *recorder
	sent   atomic.Uint64 // messages that the server should receive
	start  time.Time     // of the open loop
	report Report

	working  sync.WaitGroup
	answers  chan any // of the server, to Bye
	all      context.Context
	fail     context.CancelCauseFunc
	sending  context.Context // ends when sending has to end
	stopSend context.CancelFunc
}

// Measure runs a measurement. An end of ctx ends the measurement and is no error. The
// report is nil if nothing was measured.
func Measure(ctx context.Context, env Env, p Params) (*Report, error) {
	r := &run{env: env, p: p, rec: newRecorder(), answers: make(chan any, 4)}
	r.hello = proto.Hello{Mode: p.Mode, Verify: p.Verify, Sockets: uint16(p.Sockets), Size: uint32(p.Size), Depth: uint32(p.Depth), Sample: sampleOf(p.Size)}
	if p.Sockets < 1 || p.Sockets > proto.MaxSockets || p.Depth < 1 || p.Depth > proto.MaxDepth || p.Size < 0 || p.Size > proto.MaxSize {
		return nil, fmt.Errorf("%w: %d sockets, %d outstanding, %d bytes", proto.ErrLimits, p.Sockets, p.Depth, p.Size)
	}
	if err := r.hello.Check(); err != nil {
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
	if err := r.attach(ctx); err != nil {
		return nil, err
	}
	defer r.client.Close()
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	return r.measure(ctx)
}

// sampleOf is n such that in mode Rate the server answers every nth message of size.
func sampleOf(size int) uint32 { return uint32(max(1, min(64, (64<<10)/max(size, 1)))) }

// finish waits for the operations in progress, then asks the server for its counts.
func (r *run) finish(work *sync.WaitGroup, stopWork chan struct{}) error {
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
		close(stopWork)
		return fmt.Errorf("%w: what was under way did not end within %v", ErrTimeout, r.p.Timeout)
	case <-r.all.Done():
		return context.Cause(r.all)
	}
	r.report.Sent = r.sent.Load()
	r.tell(&proto.Bye{Sent: r.report.Sent})
	limit.Reset(r.p.Timeout + finalWait)
	select {
	case m := <-r.answers:
		return r.judge(m.(*proto.Final))
	case <-limit.C:
		return fmt.Errorf("%w: the server's count", ErrTimeout)
	case <-r.all.Done():
		return context.Cause(r.all)
	}
}

// judge compares the server's counts with the client's.
func (r *run) judge(f *proto.Final) error {
	rep := &r.report
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

func (r *run) tell(m any) {
	_, _ = r.ctl.SendMsg(&rds.Message{Addr: r.p.Server, Payload: proto.Append(nil, m), DontWait: true})
}

// notices returns an error if a socket has a notice.
func (r *run) notices() error {
	var n [1]rds.Notice
	for _, s := range r.socks {
		if s.Notices(n[:]) > 0 {
			return fmt.Errorf("%w: %v at %v, %d messages", ErrGone, n[0].Kind, n[0].To, n[0].Count)
		}
	}
	return nil
}

// closeSockets closes the sockets, which ends calls that wait.
func (r *run) closeSockets() {
	for _, s := range r.socks {
		_ = s.Close()
	}
}
