package shm

import "time"

// Waiter is how a client's leader goroutine blocks and how others end its wait. A ring
// before Wait is remembered and ends Wait at once.
type Waiter interface {
	// Wait blocks until somebody rings or the deadline passes. The deadline is in
	// nanoseconds of the Waiter's clock, 0 for none. Wait may return early. Only one
	// goroutine at a time may call it.
	Wait(deadlineNs int64)
	// Ring ends the current or the next Wait. It never blocks. Any goroutine may call it,
	// also after Close.
	Ring()
	// Close frees the Waiter's resources. No goroutine may be in Wait or call it later.
	Close() error
}

// ChanWaiter waits on a channel. It is for processes that contain both ends, and for tests
// under testing/synctest, where only channels count as blocked.
type ChanWaiter struct {
	ch  chan struct{}
	now func() int64
}

// NewChanWaiter returns a Waiter whose deadlines are in nanoseconds of now. now may be nil
// if no Wait has a deadline.
func NewChanWaiter(now func() int64) *ChanWaiter {
	return &ChanWaiter{ch: make(chan struct{}, 1), now: now}
}

// Wait implements Waiter.
func (w *ChanWaiter) Wait(deadlineNs int64) {
	if deadlineNs == 0 {
		<-w.ch
		return
	}
	t := time.NewTimer(time.Duration(deadlineNs - w.now()))
	defer t.Stop()
	select {
	case <-w.ch:
	case <-t.C:
	}
}

// Ring implements Waiter.
func (w *ChanWaiter) Ring() {
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

// Close implements Waiter.
func (w *ChanWaiter) Close() error { return nil }
