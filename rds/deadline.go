package rds

import (
	"sync"
	"sync/atomic"
	"time"
)

// deadline is the read or the write deadline of a socket. A timer marks it expired,
// so that no send or receive reads the clock.
type deadline struct {
	expired atomic.Bool

	mu    sync.Mutex
	at    time.Time
	timer *time.Timer
}

// set moves the deadline. The zero time removes it. wake is called when the deadline
// expires, and must be the same function in every call.
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

// fire runs on the timer. A timer that was stopped too late finds that the deadline
// has gone or moved. A timer that fires early by the clock of the deadline is
// started again.
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
