package rds

import (
	"runtime"
	"time"
)

const (
	// spinDefault keeps a whole request and reply among four processes in the
	// fast regime: nobody on the path falls asleep in between.
	spinDefault = 50 * time.Microsecond
	// A yield that took longer than yieldHog gave the processor to somebody
	// who does not share: then yielding costs milliseconds, so block at once
	// for hogPause.
	yieldHog = 100 * time.Microsecond
	hogPause = 50 * time.Millisecond
)

// spinner decides how long the leader yields before it blocks. Only the leader
// uses it.
type spinner struct {
	window time.Duration // 0 and less: block at once
	since  time.Time     // start of the window, zero: not begun
	last   time.Time     // after the last yield
	noSpin time.Time     // until when hogs are assumed
}

// again yields once, if the window is still open, and says so. It reads the
// clock once: what it measures as the yield includes the look at the rings
// before it, which is short.
func (s *spinner) again() bool {
	if s.window <= 0 {
		return false
	}
	if s.since.IsZero() {
		s.since = time.Now()
		s.last = s.since
		if s.since.Before(s.noSpin) {
			return false
		}
	}
	osYield()
	now := time.Now()
	if now.Sub(s.last) > yieldHog {
		s.noSpin = now.Add(hogPause)
		return false
	}
	s.last = now
	return now.Sub(s.since) < s.window
}

func (s *spinner) restart() { s.since = time.Time{} }

// park waits until w is signalled. It returns early only for that.
func (c *Client) park(w *waiter) {
	for !w.signalled.Load() {
		c.wait.mu.Lock()
		if c.wait.leader == nil && !w.signalled.Load() {
			c.wait.leader = w
		}
		leads := c.wait.leader == w
		c.wait.mu.Unlock()
		if leads {
			c.lead(w)
			return
		}
		<-w.ch
	}
}

// lead looks after the rings for all waiters until w is signalled; w is the
// leader and stays it until it leaves.
func (c *Client) lead(w *waiter) {
	c.spin.restart()
	for !w.signalled.Load() {
		if c.poll() {
			if !w.signalled.Load() {
				runtime.Gosched() // to those it was for; this processor is the nearest
			}
			c.spin.restart()
			continue
		}
		if c.spin.again() {
			continue
		}
		// Goroutines that wait for a processor get this one: one that enters a
		// system call keeps it for a while.
		runtime.Gosched()
		c.sleep(w)
		c.spin.restart()
	}
}

// poll takes in what the daemon published and wakes whom it concerns. It
// reports whether there was anything.
func (c *Client) poll() bool {
	progress := c.rx.poll()
	if c.wait.returns.Load() > 0 {
		progress = c.tx.poll() || progress
	}
	return progress
}

// sleep blocks until the daemon or somebody in this process rings. The
// announcement comes before the last look at the rings: whoever publishes
// after that look sees it and rings.
func (c *Client) sleep(w *waiter) {
	c.wait.mu.Lock()
	if w.signalled.Load() || c.wait.closed {
		c.wait.mu.Unlock()
		return
	}
	c.pins.Add(1)
	c.wait.blocked = true
	c.wait.mu.Unlock()

	c.tx.poll() // what nobody waited for is no reason to stay awake
	asleep := c.seg.ClientAsleep()
	asleep.Store(1)
	if c.rx.empty() && c.tx.returnsEmpty() {
		c.bell.Wait(0)
	}
	asleep.Store(0)

	c.wait.mu.Lock()
	c.wait.blocked = false
	c.wait.mu.Unlock()
	c.pins.Done()
}
