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
	"github.com/rdsd/rdsd/internal/version"
	"github.com/rdsd/rdsd/rds"
)

// Params of a measurement.
type Params struct {
	Mode     proto.Mode
	Local    netip.Addr     // of this host's daemon
	Server   netip.AddrPort // zero: a server in this process
	Size     int            // bytes of a message or operation
	Depth    int            // outstanding per socket; of Rate: messages handed over at once
	Sockets  int
	Rate     float64 // operations a second in all, 0: as fast as they go
	WarmUp   time.Duration
	Duration time.Duration // 0: until interrupted
	Interval time.Duration // between lines, 0: none
	Timeout  time.Duration // of the server's answers
	Verify   bool
	// OnInterval is told of each interval and when it ended.
	OnInterval func(i *Interval, end time.Duration)
}

// Errors of a measurement.
var (
	ErrNoServer = errors.New("nobody serves there")
	ErrRefused  = errors.New("the server refuses")
	ErrGone     = errors.New("the server is gone")
	ErrTimeout  = errors.New("no answer in time")
)

// silence is how long a server may say nothing while it is measured with.
const silence = 10 * time.Second

// run is a measurement under way.
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
	answers  chan any // of the server to Bye
	all      context.Context
	fail     context.CancelCauseFunc
	sending  context.Context // ends when no more is to be sent
	stopSend context.CancelFunc
}

// Measure runs a measurement. When ctx ends, it is the end of the measurement
// and no error. The report is nil if nothing was measured.
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

// sampleOf is every how many messages of size the server answers in Rate.
func sampleOf(size int) uint32 { return uint32(max(1, min(64, (64<<10)/max(size, 1)))) }

// serveHere runs a server in this process.
func (r *run) serveHere(ctx context.Context) (stop func(), err error) {
	s, err := NewServer(ctx, Env{Open: r.env.Open, corrupt: r.env.corrupt}, netip.AddrPortFrom(r.p.Local, 0))
	if err != nil {
		return nil, err
	}
	r.p.Server = s.Addr()
	r.report.OneProcess = true
	serving, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(serving); err != nil {
			r.fail(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}, nil
}

func (r *run) attach(ctx context.Context) (err error) {
	if r.client, err = r.env.Open(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.client.Close()
		}
	}()
	if r.ctl, err = r.client.Bind(netip.AddrPortFrom(r.p.Local, 0)); err != nil {
		return err
	}
	for range r.p.Sockets {
		s, err := bind(r.client, r.p.Local, &r.hello)
		if err != nil {
			return err
		}
		s.SetNotices(rds.Lost, rds.NoSocket)
		r.socks = append(r.socks, s)
	}
	return nil
}

// begin asks the server for a session.
func (r *run) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.p.Timeout)
	defer cancel()
	r.ctl.SetNotices(rds.Lost, rds.NoSocket)
	b := proto.Append(nil, &r.hello)
	if v := r.env.version; v != 0 {
		b[4], b[5] = byte(v>>8), byte(v)
	}
	if _, err := r.ctl.SendMsg(&rds.Message{Addr: r.p.Server, Payload: b, DontWait: true, GiveUpAfter: r.p.Timeout}); err != nil {
		return err
	}
	m, err := r.hear(ctx)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w: %v said nothing within %v; is there a daemon (rdsctl ping %v), and rdsctl bench -serve?", ErrTimeout, r.p.Server, r.p.Timeout, r.p.Server.Addr())
		}
		return err
	}
	w, ok := m.(*proto.Welcome)
	if !ok || len(w.Ports) != r.p.Sockets {
		return fmt.Errorf("%w: %T in answer to Hello", proto.ErrMessage, m)
	}
	for _, p := range w.Ports {
		r.to = append(r.to, netip.AddrPortFrom(r.p.Server.Addr(), p))
	}
	r.cookie = rds.Cookie(w.Cookie)
	return nil
}

// hear waits for a message of the server that is no sign of life.
func (r *run) hear(ctx context.Context) (any, error) {
	m := rds.Message{Payload: make([]byte, proto.MaxMessage), DontWait: true}
	for {
		if _, err := r.ctl.Wait(ctx, rds.WaitSet{Message: true, Notice: true}); err != nil {
			return nil, err
		}
		var n [1]rds.Notice
		if r.ctl.Notices(n[:]) > 0 {
			if n[0].Kind == rds.NoSocket {
				return nil, fmt.Errorf("%w: no rdsctl bench -serve at %v", ErrNoServer, r.p.Server)
			}
			return nil, fmt.Errorf("%w: the daemon of %v restarted", ErrGone, r.p.Server.Addr())
		}
		if r.ctl.RecvMsg(&m) != nil || m.Addr != r.p.Server {
			continue
		}
		got, err := proto.Parse(m.Payload[:m.N])
		if err != nil {
			return nil, err
		}
		switch x := got.(type) {
		case *proto.Alive:
			return got, nil
		case *proto.Refuse:
			err := ErrRefused
			if x.Code == proto.Leaving {
				err = ErrGone
			}
			return nil, fmt.Errorf("%w: %s", err, x.Text)
		}
		return got, nil
	}
}

// listen hears the server until the end of the measurement.
func (r *run) listen() {
	for {
		ctx, cancel := context.WithTimeout(r.all, silence)
		m, err := r.hear(ctx)
		cancel()
		switch {
		case r.all.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			r.fail(fmt.Errorf("%w: %v has said nothing for %v", ErrGone, r.p.Server, silence))
			return
		case err != nil:
			r.fail(err)
			return
		}
		if f, ok := m.(*proto.Final); ok {
			r.answers <- f
			return
		}
	}
}

func (r *run) measure(ctx context.Context) (*Report, error) {
	r.start = time.Now()
	r.describe()
	r.working.Go(r.listen)
	stopWork := make(chan struct{})
	var work sync.WaitGroup
	for i := range r.socks {
		work.Go(func() {
			if err := r.work(i, stopWork); err != nil {
				r.fail(err)
			}
		})
	}
	err := r.course(ctx)
	r.stopSend()
	if err == nil {
		err = r.finish(&work, stopWork)
	}
	r.fail(nil)
	r.closeSockets()
	work.Wait()
	r.working.Wait()
	r.report.Verified = r.p.Verify && err == nil
	if err != nil {
		r.report.Failure = err.Error()
	}
	return &r.report, err
}

func (r *run) describe() {
	p := &r.p
	one := r.report.OneProcess
	r.report = Report{Mode: p.Mode.String(), Local: p.Local, Server: p.Server, OneProcess: one, Size: p.Size, Depth: p.Depth, Sockets: p.Sockets,
		Rate: p.Rate, WarmUp: p.WarmUp, Intervals: []Interval{}, Environment: environment(version.String())}
	if p.Mode == proto.Rate {
		r.report.Sample = int(r.hello.Sample)
	}
}

// course is warm-up and measurement, with a line every interval. An end of ctx
// is the end of both.
func (r *run) course(ctx context.Context) error {
	wait := func(until <-chan time.Time, tick <-chan time.Time, line func(time.Time)) (bool, error) {
		for {
			select {
			case <-until:
				return true, nil
			case now := <-tick:
				line(now)
				if err := r.notices(); err != nil {
					return false, err
				}
			case <-ctx.Done():
				r.report.Interrupted = true
				return false, nil
			case <-r.all.Done():
				return false, context.Cause(r.all)
			}
		}
	}
	r.report.Started = time.Now().UTC()
	cpu, daemon := processCPU(), r.env.daemonCPU()
	begin := r.start
	if r.p.WarmUp > 0 {
		t := time.NewTimer(r.p.WarmUp)
		defer t.Stop()
		if on, err := wait(t.C, nil, nil); err != nil {
			return err
		} else if on {
			r.tell(&proto.Mark{})
			r.rec.reset()
			r.report.Started = time.Now().UTC()
			begin = time.Now()
			cpu, daemon = processCPU(), r.env.daemonCPU()
		}
	}
	var err error
	last := begin
	line := func(now time.Time) {
		i := r.rec.interval(now.Sub(last))
		last = now
		if len(r.report.Intervals) < maxIntervals {
			r.report.Intervals = append(r.report.Intervals, i)
		}
		if r.p.OnInterval != nil {
			r.p.OnInterval(&i, now.Sub(begin))
		}
	}
	if !r.report.Interrupted {
		var until, tick <-chan time.Time
		if r.p.Duration > 0 {
			t := time.NewTimer(r.p.Duration)
			defer t.Stop()
			until = t.C
		}
		if r.p.Interval > 0 {
			t := time.NewTicker(r.p.Interval)
			defer t.Stop()
			tick = t.C
		}
		_, err = wait(until, tick, line)
	}
	r.sum(begin, last, cpu, daemon)
	return err
}

// maxIntervals are kept for the report: a day of seconds.
const maxIntervals = 24 * 60 * 60

// sum fills in the report's figures, as they are now.
func (r *run) sum(begin, last time.Time, cpu, daemon time.Duration) {
	now := time.Now()
	r.rec.interval(now.Sub(last))
	rep := &r.report
	rep.Interval, rep.Late = r.rec.total(now.Sub(begin))
	rep.PerSecond, rep.BytesPerSec = rep.perSecond(rep.Operations), rep.perSecond(rep.Bytes)
	used := processCPU() - cpu
	rep.CPU.Client = &used
	if d := r.env.daemonCPU(); d >= 0 && daemon >= 0 {
		d -= daemon
		rep.CPU.ClientDaemon = &d
	}
}

// finish waits for what is under way, and asks the server what it got.
func (r *run) finish(work *sync.WaitGroup, stopWork chan struct{}) error {
	// Replies to what was sent are still checked.
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

// judge takes what the server counted.
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

// notices looks for what became of messages.
func (r *run) notices() error {
	var n [1]rds.Notice
	for _, s := range r.socks {
		if s.Notices(n[:]) > 0 {
			return fmt.Errorf("%w: %v at %v, %d messages", ErrGone, n[0].Kind, n[0].To, n[0].Count)
		}
	}
	return nil
}

// closeSockets ends calls that wait.
func (r *run) closeSockets() {
	for _, s := range r.socks {
		_ = s.Close()
	}
}
