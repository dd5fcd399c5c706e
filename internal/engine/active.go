package engine

import (
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
)

// The engine looks only at the rings of active clients. It parks a client that has had
// nothing to say for a while, and parks all before it sleeps: the client's segment then
// says that the daemon sleeps (shm.WakeNeeded), so the client rings when it has submitted
// something. Idle processes cost a turn nothing.

// parkAfter: turns in a row without work from a client.
const parkAfter = 1024

// maxExpected: active clients from which on others have to ring to answer.
const maxExpected = 16

// pollClients empties the rings of the active clients, starting with another one
// each turn.
func (cs *clientTable) pollClients() bool {
	e := cs.e
	if cs.rung.Load() {
		cs.rung.Store(false)
		for _, c := range cs.all {
			if c.rung.Load() {
				c.rung.Store(false)
				e.Unpark(c)
			}
		}
	}
	work := false
	var next *lists.Link[Client]
	for n := cs.active.Head; n != nil; n = next {
		next = n.Next
		switch c := n.Of; {
		case e.tx.pollClient(c):
			c.idle = 0
			work = true
		case c.idle >= parkAfter:
			cs.park(c)
		default:
			c.idle++
		}
	}
	if n := cs.active.Head; n != cs.active.Tail {
		c := n.Of
		cs.active.Del(n)
		cs.active.Add(n, c)
	}
	return work
}

// park announces sleep to c and looks once more; false: there is something.
func (cs *clientTable) park(c *Client) bool {
	asleep := c.seg.DaemonAsleep()
	if asleep.Store(shm.Asleep); c.noRoom {
		asleep.Store(shm.AsleepForRoom)
	}
	// A ring that broke in this look is empty, and is for the next turn to see:
	// its owner may have rung for the last time.
	if !c.sub.Empty() || !c.rret.Empty() || c.noRoom && c.ev.HalfFree() || c.again || c.ringError() != nil {
		asleep.Store(shm.Awake)
		c.idle = 0
		return false
	}
	cs.active.Del(&c.inActive)
	return true
}

// parkAll parks every client and reports whether none had anything.
func (cs *clientTable) parkAll() bool {
	for cs.active.N > 0 {
		if !cs.park(cs.active.Head.Of) {
			return false
		}
	}
	return true
}

// Unpark makes c active: it has rung, or is new.
func (e *Engine) Unpark(c *Client) {
	if c.dead || c.inActive.On() {
		return
	}
	c.idle = 0
	e.clients.active.Add(&c.inActive, c)
	c.seg.DaemonAsleep().Store(shm.Awake)
}

// expect makes c, which has news, active: its answer need not ring then. Of more
// clients at a time that would cost the turns more than it saves.
func (cs *clientTable) expect(c *Client) {
	if cs.active.N < maxExpected {
		cs.e.Unpark(c)
	}
}

// ring notes that c has rung. Safe for any goroutine.
func (cs *clientTable) ring(c *Client) {
	e := cs.e
	c.rung.Store(true)
	cs.rung.Store(true)
	e.post.Ring()
}

// Parked reports whether some clients have to ring to be heard.
func (e *Engine) Parked() bool { return e.clients.active.N < len(e.clients.all) }
