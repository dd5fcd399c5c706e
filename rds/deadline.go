package rds

import (
	"sync"
	"sync/atomic"
	"time"
)

// deadline is one direction's deadline of a socket. A timer marks it expired,
// so that neither sending nor receiving reads a clock.
type deadline struct {
	expired atomic.Bool

	mu    sync.Mutex
	at    time.Time
	timer *time.Timer
}

// set moves the deadline; the zero time removes it. wake is called whenever it
// expires and must be the same in every call.
func (d *deadline) set(t time.Time, wake func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at = t
	if t.IsZero() {
		d.expired.Store(false)
		return
	}
	left := time.Until(t)
	d.expired.Store(left <= 0)
	switch {
	case left <= 0:
		wake()
	case d.timer == nil:
		d.timer = time.AfterFunc(left, func() { d.fire(wake) })
	default:
		d.timer.Reset(left)
	}
}

// fire runs on the timer. One that was stopped too late finds the deadline gone
// or moved, and one whose clock is ahead of the deadline's finds it not there yet:
// it goes on.
func (d *deadline) fire(wake func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() {
		return
	}
	if left := time.Until(d.at); left > 0 {
		d.timer.Reset(left)
		return
	}
	d.expired.Store(true)
	wake()
}

// stop ends the timer for good.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
}
