package rds

import (
	"runtime"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
)

// spinDefault is long enough for a request and its reply among four processes, so
// that none of them falls asleep in between.
const spinDefault = 50 * time.Microsecond

// spinner decides how long the leader yields before it blocks. Only the leader
// uses it.
type spinner struct {
	window int64 // ns; 0 and less: block at once
	clock  time.Time
	since  int64 // start of the wait; 0: not begun
	last   int64 // after the last yield
	vain   int   // waits in a row that were longer than the window
	guard  shm.SpinGuard
}

// maxVain is how many waits in a row spinning may fail to shorten. The leader then
// blocks at once, until a wait was short.
const maxVain = 4

func newSpinner(window time.Duration) spinner {
	return spinner{window: int64(window), clock: time.Now()}
}

func (s *spinner) now() int64 { return int64(time.Since(s.clock)) + 1 }

// again yields once if the window is still open, and reports whether it was. It
// reads the clock once: the time it measures for the yield includes the short look
// at the rings before it.
func (s *spinner) again() bool {
	if s.window <= 0 || s.since == 0 && !s.begin() {
		return false
	}
	osYield()
	now := s.now()
	if !s.guard.Yielded(s.last, now) {
		return false
	}
	s.last = now
	return now-s.since < s.window
}

// begin starts a wait and reports whether to spin in it.
func (s *spinner) begin() bool {
	s.since = s.now()
	s.last = s.since
	return s.vain < maxVain && s.guard.May(s.since)
}

// slept ends a wait that did not end while spinning. If the wait was so short that
// spinning might have covered it, the next wait spins again.
func (s *spinner) slept() {
	if s.window <= 0 {
		return
	}
	if s.now()-s.since < 2*s.window {
		s.vain = 0
	} else if s.vain < maxVain {
		s.vain++
	}
	s.since = 0
}

// met ends a wait that ended before the leader slept.
func (s *spinner) met() {
	if s.since != 0 {
		s.vain, s.since = 0, 0
	}
}

const (
	// giveEvery is how long the leader may go to sleep again and again without
	// checking whether other goroutines wait for a processor.
	giveEvery = 5 * time.Millisecond
	// gaveLong: if giving way took that long, other goroutines have run.
	gaveLong = 20 * time.Microsecond
)

// giver decides whether the leader gives way to other goroutines before a system
// call in which it keeps its processor for a while. If another processor is idle,
// that one runs the other goroutines anyway, and giving way only costs the wake-up
// of a thread for each sleep. So the leader gives way once in giveEvery, and every
// time as long as that lets other goroutines run. Only the leader uses it.
type giver struct {
	last time.Time
	busy bool // others ran when it gave way
}

func (g *giver) give() {
	now := time.Now()
	if !g.busy && now.Sub(g.last) < giveEvery {
		return
	}
	runtime.Gosched()
	g.last = time.Now()
	g.busy = g.last.Sub(now) > gaveLong
}

// park waits until w is signalled, and returns for no other reason.
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

// lead looks after the rings for all waiters until w is signalled. w is the leader
// until it leaves.
func (c *Client) lead(w *waiter) {
	c.spin.since = 0
	for !w.signalled.Load() {
		if c.poll() {
			if !w.signalled.Load() {
				runtime.Gosched() // to those it was for; this processor is the nearest
			}
			c.spin.met()
			continue
		}
		if c.spin.again() {
			continue
		}
		c.give.give()
		c.sleep(w)
		c.spin.slept()
	}
}

// poll takes in what the daemon published, and wakes the waiters it concerns. It
// reports whether there was anything.
func (c *Client) poll() bool {
	progress := c.rx.poll()
	if c.wait.returns.Load() > 0 {
		progress = c.tx.poll() || progress
	}
	return progress
}

// announce tells the daemon for what it has to ring. A goroutine that begins to wait
// for returned messages at this moment is either seen here, or sees the announcement
// and widens it: see waiters.enter.
func (c *Client) announce() {
	asleep := c.seg.ClientAsleep()
	if c.wait.returns.Load() == 0 {
		asleep.Store(shm.AsleepForEvents)
	}
	if c.wait.returns.Load() > 0 {
		asleep.Store(shm.Asleep)
	}
}

// sleep blocks until the daemon or somebody in this process rings. The announcement
// comes before the last look at the rings. So whoever publishes after that look sees
// the announcement and rings.
func (c *Client) sleep(w *waiter) {
	c.wait.mu.Lock()
	if w.signalled.Load() || c.wait.closed {
		c.wait.mu.Unlock()
		return
	}
	c.pins.Add(1)
	c.wait.blocked = true
	c.wait.mu.Unlock()

	c.tx.poll() // warm ids and memory for the next messages
	if c.announce(); c.rx.empty() && (c.wait.returns.Load() == 0 || c.tx.returnsEmpty()) {
		c.bell.Wait(0)
	}
	c.seg.ClientAsleep().Store(shm.Awake)

	c.wait.mu.Lock()
	c.wait.blocked = false
	c.wait.mu.Unlock()
	c.pins.Done()
}
