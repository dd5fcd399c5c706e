package loadgen

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/version"
	"github.com/rdsd/rdsd/rds"
)

func (r *run) measure(ctx context.Context) (*Report, error) {
	r.start = time.Now()
	r.describe()
	var alive, work sync.WaitGroup
	living, end := context.WithCancel(r.all)
	defer end()
	alive.Go(func() { r.stayAlive(living) })
	for i := range r.socks {
		work.Go(func() {
			if err := r.work(i); err != nil {
				r.fail(err)
			}
		})
	}
	err := r.course(ctx)
	r.stopSend()
	if err == nil {
		err = r.finish(&work, func() {
			end()
			alive.Wait()
		})
	}
	r.fail(nil)
	work.Wait()
	alive.Wait()
	r.report.Verified = r.p.Verify && err == nil
	if err != nil {
		r.report.Failure = err.Error()
	}
	return &r.report, err
}

// work is one socket's part of the measurement. It ends when nothing more is sent and
// everything sent has been answered, or at the end of all.
func (r *run) work(i int) error {
	l := (*Loop)(nil)
	if r.p.Mode.RDMA() {
		var err error
		if l, err = r.operations(i); err != nil {
			return err
		}
	} else {
		l = r.stream(i)
	}
	l.Notice = func(n *rds.Notice) error { return fmt.Errorf("%w: %w", ErrGone, noticed(n)) }
	return l.Run(r.all, r.sending)
}

func (r *run) describe() {
	p := &r.p
	one := r.report.OneProcess
	r.report = Report{Mode: p.Mode.String(), Local: p.Local, Server: p.Server, OneProcess: one, Size: p.Size, Depth: p.Depth, Sockets: p.Sockets,
		Rate: p.Rate, WarmUp: p.WarmUp, Intervals: []Interval{}, Environment: environment(version.String())}
	if p.Mode == Rate {
		r.report.Sample = r.hello.Sample
	}
}

// maxIntervals is how many intervals are kept for the report: a day of seconds.
const maxIntervals = 24 * 60 * 60

// course is warm-up and measurement, with a line every interval. An end of ctx ends both.
func (r *run) course(ctx context.Context) error {
	begin, last := r.start, r.start
	r.report.Started = time.Now().UTC()
	before := r.env.cpu()
	c := Course{WarmUp: r.p.WarmUp, Duration: r.p.Duration, Interval: r.p.Interval}
	c.Begin = func() {
		if r.p.WarmUp == 0 {
			return
		}
		if err := r.call(r.all, callMark, r.p.Timeout, nil, nil); err != nil {
			r.fail(err)
		}
		r.rec.reset()
		begin = time.Now()
		last, r.report.Started = begin, begin.UTC()
		before = r.env.cpu()
	}
	c.Line = func(now time.Time) {
		i := r.rec.interval(now.Sub(last))
		last = now
		if len(r.report.Intervals) < maxIntervals {
			r.report.Intervals = append(r.report.Intervals, i)
		}
		if r.p.OnInterval != nil {
			r.p.OnInterval(&i, now.Sub(begin))
		}
	}
	err := c.Run(ctx, r.all)
	if err == ErrInterrupted {
		r.report.Interrupted, err = true, nil
	}
	r.sum(begin, last, before)
	return err
}

// sum fills in the report's figures so far.
func (r *run) sum(begin, last time.Time, before cpu) {
	now := time.Now()
	r.rec.interval(now.Sub(last))
	rep := &r.report
	rep.Interval, rep.Late = r.rec.total(now.Sub(begin))
	rep.PerSecond, rep.BytesPerSec = rep.perSecond(rep.Operations), rep.perSecond(rep.Bytes)
	used := r.env.cpu().since(before)
	rep.CPU.Client = &used.own
	if used.daemon >= 0 {
		rep.CPU.ClientDaemon = &used.daemon
	}
}
