package rds

import (
	"runtime"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/wait"
)

// patience is how the leader waits before it blocks. Only the leader uses it.
type patience struct {
	wait.Waiter
	start time.Time
}

func newPatience(s wait.Strategy, window time.Duration) patience {
	return patience{Waiter: wait.New(s, int64(window), wait.Block), start: time.Now()}
}

func (p *patience) now() int64 { return int64(time.Since(p.start)) + 1 }

// again reports whether to look once more before blocking, and gives the processor away
// before if it is to.
func (p *patience) again() bool {
	if p.Blocks() {
		return false
	}
	switch p.Next(p.now()) {
	case wait.Yield:
		wait.GiveWay()
	case wait.Spin:
		wait.Pause()
	default:
		return false
	}
	return true
}

// over ends the wait.
func (p *patience) over() {
	if p.Waits() {
		p.Over(p.now())
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
		if c.wait.leader == nil && !w.signalled.Load() && !c.wait.down {
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
	for !w.signalled.Load() {
		if c.poll() {
			if !w.signalled.Load() {
				runtime.Gosched() // to those it was for; this processor is the nearest
			}
			c.waits.over()
			continue
		}
		if !c.give.busy && c.waits.again() { // busy: others of this process want the processor
			continue
		}
		c.give.give()
		c.sleep(w)
	}
	c.waits.over()
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
