package loadgen

import (
	"context"
	"errors"
	"time"
)

// Course is the time of a run: a warm-up, then intervals of figures until the end.
type Course struct {
	WarmUp   time.Duration
	Duration time.Duration       // from the end of the warm-up; 0: no end
	Interval time.Duration       // between lines; 0: no lines
	Over     <-chan struct{}     // closed when the peer ends the run; nil: it does not
	Begin    func()              // called when figures begin to count
	Line     func(now time.Time) // called every interval
}

// Why a course ended before its time, without an error in the run.
var (
	ErrInterrupted = errors.New("interrupted")
	ErrOver        = errors.New("ended by the peer")
)

// Run runs the course. It returns nil at its end, ErrInterrupted when ctx ends, ErrOver when
// the peer has ended the run, or the cause of the end of all.
func (c *Course) Run(ctx, all context.Context) error {
	warm := time.NewTimer(c.WarmUp)
	defer warm.Stop()
	var tick, end <-chan time.Time
	for {
		select {
		case <-warm.C:
			c.Begin()
			if c.Interval > 0 {
				t := time.NewTicker(c.Interval)
				defer t.Stop()
				tick = t.C
			}
			if c.Duration > 0 {
				t := time.NewTimer(c.Duration)
				defer t.Stop()
				end = t.C
			}
		case now := <-tick:
			c.Line(now)
		case <-end:
			return nil
		case <-c.Over:
			return ErrOver
		case <-ctx.Done():
			return ErrInterrupted
		case <-all.Done():
			return context.Cause(all)
		}
	}
}
