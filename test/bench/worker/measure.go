package worker

import (
	"slices"
	"sync"
	"time"
)

// patience is how much longer than its duration a measurement may take until something is
// counted.
const patience = 5 * time.Second

// Count runs work beside a measurement of the messages it counts in Msgs, for
// the argument d after a warm-up, and longer if nothing was counted by then. With the argument
// calls, Count also counts the system calls of all processes.
func (w *Worker) Count(work func() error) error {
	failed := make(chan error, 1)
	go func() { failed <- work() }()
	pass := func(d time.Duration, more func() bool) error {
		for end := time.Now().Add(d + patience); ; d = 10 * time.Millisecond {
			select {
			case err := <-failed:
				return err
			case <-time.After(d):
			}
			if more() || time.Now().After(end) {
				return nil
			}
		}
	}
	if err := pass(w.Warmup(), func() bool { return w.Msgs.Load() > 0 }); err != nil {
		return err
	}
	counted := w.Get("calls") != ""
	calls := &callCounter{}
	if counted {
		var err error
		if calls, err = countCalls(w.pids); err != nil {
			return err
		}
		defer calls.close()
	}
	before, err := calls.total()
	if err != nil {
		return err
	}
	s := w.Start()
	if err := pass(w.Duration("d"), func() bool { return w.Msgs.Load() > s.msgs }); err != nil {
		return err
	}
	r := w.Stop(s)
	after, err := calls.total()
	if err != nil {
		return err
	}
	if counted {
		w.Extra[CallsExtra] = float64(after-before) / float64(max(r.Messages, 1))
	}
	return w.Finish(r)
}

// Each calls step again and again within run, which is Count or Serve. step returns how many
// messages it moved.
func (w *Worker) Each(run func(func() error) error, step func() (int, error)) error {
	return run(func() error {
		for {
			n, err := step()
			if err != nil {
				return err
			}
			w.Msgs.Add(uint64(n))
		}
	})
}

// Together is Each within Serve, from as many goroutines as the argument callers says, until one
// fails.
func (w *Worker) Together(step func() (int, error)) error {
	return w.Serve(func() (first error) {
		var wg sync.WaitGroup
		var once sync.Once
		for range w.Int("callers") {
			wg.Go(func() {
				err := w.Each(func(work func() error) error { return work() }, step)
				once.Do(func() { first = err })
			})
		}
		wg.Wait()
		return first
	})
}

// Warmup returns how long to work before a measurement begins.
func (w *Worker) Warmup() time.Duration { return min(w.Duration("d")/4, 300*time.Millisecond) }

// Span is a measurement that has begun.
type Span struct {
	at   time.Time
	cpu  time.Duration
	msgs uint64
}

// Start begins a measurement.
func (w *Worker) Start() Span { return Span{time.Now(), CPUTime(w.pids), w.Msgs.Load()} }

// Stop ends a measurement.
func (w *Worker) Stop(s Span) Result {
	n := w.Msgs.Load() - s.msgs
	el := time.Since(s.at)
	return Result{Messages: n, Seconds: el.Seconds(), CPU: (CPUTime(w.pids) - s.cpu).Seconds()}
}

// Trips measures the time that once takes, again and again. Each call counts as per messages.
func (w *Worker) Trips(per uint64, once func() error) error {
	for end := time.Now().Add(w.Warmup()); time.Now().Before(end); {
		if err := once(); err != nil {
			return err
		}
		w.Msgs.Add(per)
	}
	d := w.Duration("d")
	took := make([]int64, 0, 1+d/(500*time.Nanosecond))
	s := w.Start()
	before := time.Now()
	for end := before.Add(d); before.Before(end) && len(took) < cap(took); {
		if err := once(); err != nil {
			return err
		}
		now := time.Now()
		took = append(took, int64(now.Sub(before)))
		before = now
		w.Msgs.Add(per)
	}
	r := w.Stop(s)
	slices.Sort(took)
	r.P50, r.P99, r.P999 = Percentile(took, 500)/1e3, Percentile(took, 990)/1e3, Percentile(took, 999)/1e3
	return w.Finish(r)
}

// Percentile returns the value that permille of the sorted values are at or below, or 0 if there
// are none.
func Percentile(sorted []int64, permille int) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	rank := (n*permille + 999) / 1000
	return float64(sorted[max(rank, 1)-1])
}
