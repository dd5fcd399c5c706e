package loadgen

import (
	"context"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/loadgen/proto"
	"github.com/rdsd/rdsd/internal/version"
)

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

// course is warm-up and measurement, with a line every interval. An end of ctx ends both.
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

// maxIntervals is how many intervals are kept for the report: a day of seconds.
const maxIntervals = 24 * 60 * 60

// sum fills in the report's figures so far.
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
