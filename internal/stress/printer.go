package stress

import (
	"context"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/stress/report"
)

// printer prints the lines of a test, from the differences of its counts.
type printer struct {
	ctx         context.Context
	perf        *report.Perf
	from, since time.Time // zero until figures count
	first, prev report.Counts
	cpuFirst    report.CPUTimes
	cpuPrev     report.CPUTimes
}

func (t *test) newPrinter(ctx context.Context) *printer {
	p := &printer{ctx: ctx}
	if t.opts.ShowPerf {
		p.perf = &report.Perf{W: t.env.Out, ReqBytes: int(t.opts.ReqSize), AckBytes: int(t.opts.AckSize), RDMABytes: int(t.opts.RDMASize)}
	}
	return p
}

func (p *printer) counters(t *test) []report.Counter {
	if t.env.Counters == nil {
		return nil
	}
	c, err := t.env.Counters(p.ctx)
	if err != nil && p.ctx.Err() == nil {
		t.say("the daemon's counters: %v", err)
	}
	return c
}

// cpu returns the machine's CPU times, or zeros if they are not needed or /proc is missing.
func (p *printer) cpu(t *test) (c report.CPUTimes) {
	if t.params.ReportCPU || p.perf != nil {
		c, _ = report.ReadCPU()
	}
	return c
}

// start makes figures count from now on.
func (p *printer) start(t *test) {
	t.started()
	p.from = time.Now()
	if t.env.Timing.BurnIn < 0 {
		p.from = t.report.Started
	} else {
		p.first = t.counts()
	}
	p.since, p.prev, t.heard = p.from, p.first, p.from
	p.cpuFirst = p.cpu(t)
	p.cpuPrev = p.cpuFirst
	switch {
	case t.env.Out == nil:
	case p.perf != nil:
		p.perf.Header(p.counters(t), p.cpuFirst)
	default:
		report.Header(t.env.Out)
	}
}

// line prints the figures since the last line.
func (p *printer) line(t *test) {
	now, c, cpu := time.Now(), t.counts(), p.cpu(t)
	l := report.Line{Tasks: int(t.opts.Tasks), Time: now.Sub(p.since), Counts: c.Sub(p.prev), CPU: -1}
	if t.params.ReportCPU {
		l.CPU = cpu.Busy(p.cpuPrev)
	}
	p.since, p.prev, p.cpuPrev = now, c, cpu
	if l.Heard() > 0 {
		t.heard = now
	}
	if len(t.report.Intervals) < maxIntervals {
		t.report.Intervals = append(t.report.Intervals, l)
	}
	switch {
	case t.env.Out == nil || t.opts.SummaryOnly:
	case p.perf != nil:
		p.perf.Line(&l, p.counters(t), cpu)
	default:
		l.Print(t.env.Out, "")
	}
	if n, least, mean := t.keys.take(); n > 0 {
		t.say(" *** %d R_Keys were re-issued; min distance=%f sec, avg distance=%f sec", n, least.Seconds(), mean.Seconds())
	}
}

// maxIntervals is how many intervals the report keeps: one a second for a day.
const maxIntervals = 24 * 60 * 60

// last prints the figures since start.
func (p *printer) last(t *test) {
	t.started()
	l := &t.report.Total
	l.Tasks, l.CPU = int(t.opts.Tasks), -1
	if p.from.IsZero() {
		p.from = t.report.Started // the test ended before the burn-in, so the figures include it
	}
	l.Time = time.Since(p.from)
	l.Counts = t.counts().Sub(p.first)
	if t.counts().Heard() == p.prev.Heard() && !t.heard.IsZero() {
		t.silent = time.Since(t.heard)
	}
	if t.params.ReportCPU {
		l.CPU = p.cpu(t).Busy(p.cpuFirst)
	}
	if t.env.Out == nil {
		return
	}
	if !t.opts.SummaryOnly {
		fmt.Fprintln(t.env.Out, "---------------------------------------------")
	}
	l.Print(t.env.Out, "  (average)")
}
