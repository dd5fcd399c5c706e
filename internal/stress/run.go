package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/loadgen"
	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/internal/stress/report"
	"github.com/rdsd/rdsd/rds"
)

// Env is what the program around a test provides.
type Env struct {
	// Out gets the columns, Err everything else. Either may be nil.
	Out, Err io.Writer
	// Open attaches to the daemon of this host.
	Open func(ctx context.Context) (*rds.Client, error)
	// Counters returns the daemon's counters, for --show-perfdata.
	Counters func(ctx context.Context) ([]report.Counter, error)
	Timing   Timing

	// corrupt is called with all data that is about to be compared. Tests use it to change the
	// data.
	corrupt func(b []byte)
	// listening is called with the passive side's address when it listens.
	listening func(netip.AddrPort)
}

// Timing is the timing of a test. A zero field has rds-stress's value, which is given below.
type Timing struct {
	Start    time.Duration // from the go-ahead to the first request, 2 s
	BurnIn   time.Duration // from the first request until figures count, 2 s; negative: no burn-in
	Interval time.Duration // between two lines, 1 s
	Drain    time.Duration // how long messages in progress are received at the end, 1 s
	Options  time.Duration // how long a peer may take to send its options, 10 s
	Stall    time.Duration // a test fails if the peer was silent this long at its end, 3 s
}

func (t *Timing) defaults() {
	for _, x := range []struct {
		d    *time.Duration
		want time.Duration
	}{{&t.Start, 2 * time.Second}, {&t.BurnIn, 2 * time.Second}, {&t.Interval, time.Second}, {&t.Drain, time.Second}, {&t.Options, 10 * time.Second}, {&t.Stall, 3 * time.Second}} {
		if *x.d == 0 {
			*x.d = x.want
		}
	}
}

// Params are the parameters from the command line.
type Params struct {
	Options proto.Options // of the active side; the passive side uses Port only
	Send    netip.Addr    // the peer; invalid on the passive side
	Recv    netip.Addr    // this side's address; invalid: that of the control connection

	ReportCPU bool
	Histogram bool
	Outlier   time.Duration // report round trips that are longer, 0: none
}

// test is one run of a test.
type test struct {
	env    Env
	params Params
	opts   proto.Options
	active bool
	client *rds.Client
	ctl    *control
	pid    int

	local, peer netip.Addr
	outlier     time.Duration
	corrupt     func(b []byte)
	all         context.Context // done when the test is over
	fail        context.CancelCauseFunc

	keys    keyMeter
	sayMu   sync.Mutex
	workers []*worker
	started func()        // ends the line that startUp began
	heard   time.Time     // when the counts last showed a message from the peer
	silent  time.Duration // at the end: how long the peer has been silent
	report  report.Report
}

// Run runs one test until Options.Seconds have passed, the peer ends it, or ctx is done, which
// is no error. It returns a report if the test had begun, even with an error.
func Run(ctx context.Context, env Env, p Params) (*report.Report, error) {
	env.Timing.defaults()
	t := &test{env: env, params: p, active: p.Send.IsValid(), pid: os.Getpid(), outlier: p.Outlier, corrupt: env.corrupt}
	var err error
	if t.active {
		err = t.connect(ctx)
	} else {
		err = t.listen(ctx)
	}
	if t.ctl != nil {
		defer t.ctl.close()
	}
	if err != nil {
		return nil, err
	}
	t.describe()
	all, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	t.all, t.fail = all, cancel
	if t.client, err = env.Open(ctx); err != nil {
		return nil, err
	}
	defer t.client.Close()
	for i := range int(t.opts.Tasks) {
		w, err := newWorker(t, i)
		if err != nil {
			return nil, err
		}
		defer func() {
			cancel(nil)
			w.close()
		}()
		t.workers = append(t.workers, w)
	}
	if err := t.ctl.ready(ctx, t.active); err != nil {
		return nil, err
	}
	t.say("negotiated options, tasks will start in %g seconds", env.Timing.Start.Seconds())
	err = t.run(ctx)
	return &t.report, err
}

func (t *test) describe() {
	o := &t.opts
	r := &t.report
	r.Role = "passive"
	if t.active {
		r.Role = "active"
	}
	r.Local, r.Peer = t.local, t.peer
	r.Parameters = report.Parameters{
		Tasks: int(o.Tasks), Depth: int(o.Depth), RequestBytes: int(o.ReqSize), AckBytes: int(o.AckSize),
		RDMABytes: int(o.RDMASize), RDMAPieces: int(o.Vector), Seconds: int(o.Seconds), Lane: int(o.TOS),
		Verify: o.Verify, Simplex: o.Simplex, Async: o.Async,
	}
	if o.RDMASize > 0 {
		r.Parameters.RDMAMode = []string{"read-write", "read", "write"}[o.RWMode]
	}
	r.Intervals = []report.Line{}
}

// run runs the tasks and prints lines.
func (t *test) run(ctx context.Context) error {
	work, stop := context.WithCancel(t.all)
	defer stop()
	var tasks sync.WaitGroup
	begin := time.NewTimer(t.env.Timing.Start)
	defer begin.Stop()
	closed := t.ctl.closed()
	defer t.startUp()()
	select {
	case <-begin.C:
	case <-closed:
		return errEarly
	case <-ctx.Done():
		t.report.Interrupted = true
		return nil
	}
	t.report.Started = time.Now().UTC()
	for _, w := range t.workers {
		tasks.Go(func() {
			if err := w.loop.Run(t.all, work); err != nil {
				t.fail(err)
			}
		})
	}
	err := t.watch(ctx, closed)
	t.ctl.close()
	stop()
	if err == nil {
		// Messages in progress are still received and checked.
		drain := time.NewTimer(t.env.Timing.Drain)
		select {
		case <-drain.C:
		case <-t.all.Done():
			// The peer's tasks may have ended by now. A task here may find that out before it
			// learns that the test is over.
			if err = context.Cause(t.all); mayBeGone(err) {
				err = nil
			}
		}
		drain.Stop()
	}
	t.fail(nil)
	tasks.Wait()
	if err == nil {
		err = t.exchanged()
	}
	t.finish(err)
	return err
}

// errEarly means that the other side ended the test before its time.
var errEarly = errors.New("the peer ended the test early")

// watch prints a line every interval until the test is over.
func (t *test) watch(ctx context.Context, closed <-chan struct{}) error {
	p := t.newPrinter(ctx)
	if t.opts.RealTime {
		undo, err := realTime()
		if err != nil {
			return err
		}
		defer undo()
	}
	err := t.watchLines(ctx, closed, p)
	if mayBeGone(err) {
		// The control connection shows whether the peer has ended the test or failed.
		wait := time.NewTimer(max(t.env.Timing.Drain, time.Second))
		defer wait.Stop()
		select {
		case <-closed:
			err = t.peerEnded()
		case <-wait.C:
		}
	}
	p.last(t)
	return err
}

// peerEnded returns the error for the end of the control connection. For the passive side there
// is none, because the active side ends the test.
func (t *test) peerEnded() error {
	if t.active {
		return errEarly
	}
	return nil
}

func (t *test) watchLines(ctx context.Context, closed <-chan struct{}, p *printer) error {
	c := loadgen.Course{WarmUp: t.env.Timing.BurnIn, Interval: t.env.Timing.Interval, Over: closed,
		Begin: func() { p.start(t) }, Line: func(time.Time) { p.line(t) }}
	if t.active {
		c.Duration = time.Duration(t.opts.Seconds) * time.Second
	}
	err := c.Run(ctx, t.all)
	switch err {
	case loadgen.ErrOver:
		return t.peerEnded()
	case loadgen.ErrInterrupted:
		t.report.Interrupted = true
		return nil
	}
	return err
}

// counts returns the sums over all tasks.
func (t *test) counts() (c report.Counts) {
	for _, w := range t.workers {
		w.n.addTo(&c)
	}
	return c
}

// exchanged returns an error if the peer sent nothing in the test, or nothing at its end.
func (t *test) exchanged() error {
	c := t.counts()
	switch {
	case c.Heard() == 0:
		return fmt.Errorf("no message came from %v, %d requests were sent to it: nothing was tested; look at the output of the other side and at rdsctl peers here", t.peer, c.RequestsSent)
	case t.silent >= t.env.Timing.Stall:
		return fmt.Errorf("the test has stalled: no message came from %v in the last %v, after %d; look at the output of the other side and at rdsctl peers here", t.peer, t.silent.Round(time.Millisecond), c.Heard())
	}
	return nil
}

// finish fills in the report. All tasks must have ended.
func (t *test) finish(err error) {
	var all latencies
	all.init()
	for _, w := range t.workers {
		all.merge(&w.n.hist)
		t.report.Retries += w.n.retries.Load()
		t.report.Disconnects += w.n.downs.Load()
		t.report.CongestedSend += w.loop.Congestions
	}
	t.report.RoundTrip, t.report.Buckets = all.hist.Summary(), all.buckets
	t.report.Verified = t.opts.Verify && err == nil
	if err != nil {
		t.report.Failure = err.Error()
	}
}

// say prints a line on Err.
func (t *test) say(format string, args ...any) {
	t.sayMu.Lock()
	defer t.sayMu.Unlock()
	if t.env.Err != nil {
		fmt.Fprintf(t.env.Err, format+"\n", args...)
	}
}

// startUp prints that the test starts, and a dot for each quarter of the time until figures
// count. end ends the line.
func (t *test) startUp() (end func()) {
	write := func(s string) {
		t.sayMu.Lock()
		defer t.sayMu.Unlock()
		if t.env.Err != nil {
			_, _ = io.WriteString(t.env.Err, s)
		}
	}
	write("Starting up")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(max((t.env.Timing.Start+max(t.env.Timing.BurnIn, 0))/startDots, 1))
		defer tick.Stop()
		for range startDots {
			select {
			case <-tick.C:
			case <-stop:
			}
			write(".")
		}
		write("\n")
	}()
	t.started = sync.OnceFunc(func() {
		close(stop)
		<-done
	})
	return t.started
}

// startDots is the number of dots: rds-stress prints one a second for four seconds.
const startDots = 4

// trace is say with -V, and otherwise prints nothing.
func (t *test) trace(format string, args ...any) {
	if t.opts.Trace {
		t.say(format, args...)
	}
}
