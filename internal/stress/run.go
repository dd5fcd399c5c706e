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

	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/internal/stress/report"
	"github.com/rdsd/rdsd/rds"
)

// Env is what a test needs of the program it runs in.
type Env struct {
	// Out gets the columns, Err what else there is to say. Both nil-safe.
	Out, Err io.Writer
	// Open attaches to the daemon of this host.
	Open func(ctx context.Context) (*rds.Client, error)
	// Counters are the daemon's, for --show-perfdata.
	Counters func(ctx context.Context) ([]report.Counter, error)
	Timing   Timing

	// corrupt is given everything that is about to be compared: a test's way to
	// show that what is wrong is found.
	corrupt func(b []byte)
	// listening is told where the passive side listens.
	listening func(netip.AddrPort)
}

// Timing of a test. The zero value is rds-stress's.
type Timing struct {
	Start    time.Duration // from the go-ahead to the first request, 2 s
	BurnIn   time.Duration // from there until figures count, 2 s; below 0: none
	Interval time.Duration // between lines, 1 s
	Drain    time.Duration // how long what is on its way is taken in at the end, 1 s
	Options  time.Duration // how long a peer may take to tell its options, 10 s
	Stall    time.Duration // the test has failed if the peer was silent so long at its end, 3 s
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

// Params are what the command line says.
type Params struct {
	Options proto.Options // of the active side; the passive one uses Port only
	Send    netip.Addr    // the peer; invalid: be the passive side
	Recv    netip.Addr    // our address, invalid: the one the control connection has

	ReportCPU bool
	Histogram bool
	Outlier   time.Duration // say which round trips are longer, 0: none
}

// test is one run.
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
	all         context.Context // ends with the test
	fail        context.CancelCauseFunc

	keys    keyMeter
	sayMu   sync.Mutex
	workers []*worker
	started func()        // ends the line of startUp
	heard   time.Time     // when figures showed last that the peer sent something
	silent  time.Duration // how long it has not, at the end
	report  report.Report
}

// Run runs one test to its end: Options.Seconds, the peer's end, or ctx's,
// which is no error. The report says what was measured, also with an error
// once the test had begun; before, it is nil.
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

// run lets the tasks work, and prints lines.
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
			if err := w.run(t.all, work); err != nil {
				t.fail(err)
			}
		})
	}
	err := t.watch(ctx, closed)
	t.ctl.close()
	stop()
	if err == nil {
		// What is on its way is still checked.
		drain := time.NewTimer(t.env.Timing.Drain)
		select {
		case <-drain.C:
		case <-t.all.Done():
			// That the peer's tasks are gone is as it should be by now. A task of
			// ours may find that out before it hears that the test is over.
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

// errEarly: the other side ended before the time.
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
		// Its control connection tells whether it has ended or failed.
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

// peerEnded is how the peer's end of the control connection is taken: it is
// how a test ends for the passive side.
func (t *test) peerEnded() error {
	if t.active {
		return errEarly
	}
	return nil
}

func (t *test) watchLines(ctx context.Context, closed <-chan struct{}, p *printer) error {
	burnIn := time.NewTimer(t.env.Timing.BurnIn)
	defer burnIn.Stop()
	var tick, end <-chan time.Time
	for {
		select {
		case <-burnIn.C:
			p.start(t)
			ticker := time.NewTicker(t.env.Timing.Interval)
			defer ticker.Stop()
			tick = ticker.C
			if t.active && t.opts.Seconds > 0 {
				timer := time.NewTimer(time.Duration(t.opts.Seconds) * time.Second)
				defer timer.Stop()
				end = timer.C
			}
		case <-tick:
			p.line(t)
		case <-end:
			return nil
		case <-closed:
			return t.peerEnded()
		case <-ctx.Done():
			t.report.Interrupted = true
			return nil
		case <-t.all.Done():
			return context.Cause(t.all)
		}
	}
}

// counts sums all tasks up.
func (t *test) counts() (c report.Counts) {
	for _, w := range t.workers {
		w.n.addTo(&c)
	}
	return c
}

// exchanged is why a test that ran to its end shows nothing: nothing came from
// the peer, or nothing any more.
func (t *test) exchanged() error {
	c := t.counts()
	switch {
	case c.Heard() == 0:
		return fmt.Errorf("no message came from %v, %d requests were sent to it: nothing was tested; what its side says, and rdsctl peers here, may tell why", t.peer, c.RequestsSent)
	case t.silent >= t.env.Timing.Stall:
		return fmt.Errorf("the test has stalled: no message came from %v in the last %v, after %d; what its side says, and rdsctl peers here, may tell why", t.peer, t.silent.Round(time.Millisecond), c.Heard())
	}
	return nil
}

// finish fills in the report, after the tasks have ended.
func (t *test) finish(err error) {
	var all latencies
	all.init()
	for _, w := range t.workers {
		all.merge(&w.n.hist)
		t.report.Retries += w.n.retries.Load()
		t.report.Disconnects += w.n.downs.Load()
		t.report.CongestedSend += w.n.congested.Load()
	}
	t.report.RoundTrip, t.report.Buckets = all.percentiles(), all.buckets
	t.report.Verified = t.opts.Verify && err == nil
	if err != nil {
		t.report.Failure = err.Error()
	}
}

// say prints a line of what goes on.
func (t *test) say(format string, args ...any) {
	t.sayMu.Lock()
	defer t.sayMu.Unlock()
	if t.env.Err != nil {
		fmt.Fprintf(t.env.Err, format+"\n", args...)
	}
}

// startUp says that the test starts, with a dot for each quarter of the time until
// figures count, as rds-stress does. What it returns ends the line.
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

// startDots: rds-stress waits four seconds, and says so each.
const startDots = 4

// trace is say, for -V.
func (t *test) trace(format string, args ...any) {
	if t.opts.Trace {
		t.say(format, args...)
	}
}
