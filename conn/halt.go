package conn

import "errors"

// ErrHalted is why a connection was broken off by Halt.
var ErrHalted = errors.New("conn: this daemon stands still for a moment")

// halting is a planned pause. First no further operation is posted (HoldOps), so that
// those in progress can end with their status. Then the connection is broken off and not
// made anew (Halt). Resume makes it anew and goes on.
type halting struct {
	ops   bool // no further operation is posted
	on    bool // nothing is connected
	again int  // attempts left to have the connection again, even with nothing to send
}

// againTries is how often a connection that was Up before Halt is tried again without
// anything to send. Two attempts that are rejected say that the peer does not want it.
const againTries = 3

// HoldOps has the Conn post no operation until Resume. Messages behind an operation wait
// with it.
func (c *Conn) HoldOps() {
	c.calls.Drive()
	c.halt.ops = true
}

// OpsOpen reports whether posted operations wait for their ack, so that a break now could
// end them with Dropped. An atomic that its message carries survives a break.
func (c *Conn) OpsOpen() bool {
	if c.state != Up {
		return false
	}
	for m := c.out.unacked.Head; m != nil; m = m.Track.Next {
		if m.OpOpen() {
			return true
		}
	}
	return false
}

// Halt breaks off the connection, or the attempt to connect, and has the Conn make no other
// until Resume. A peer's request is kept unanswered until then. What the peer's
// congestion map said stays: the peer says anew on the next connection what has changed.
// When State is Down no work request uses a message's memory.
func (c *Conn) Halt(now int64) {
	c.calls.Drive()
	c.now = now
	c.halt.ops, c.halt.on = true, true
	switch c.state {
	case Up:
		if c.link.ready && !c.closed {
			c.halt.again = againTries
		}
		c.fail(ErrHalted)
	case Connecting:
		c.abandon(ErrHalted)
	}
}

// Resume ends what HoldOps and Halt have begun. A connection that was Up before Halt is
// made anew at once, whether there is something to send or not.
func (c *Conn) Resume(now int64) {
	c.calls.Drive()
	c.now = now
	was := c.halt.on
	c.halt.ops, c.halt.on = false, false
	c.dirty = true
	if was {
		c.lostAt = c.now
	}
	if !was || c.state != Down {
		return
	}
	if c.request.waits {
		c.request.waits = false
		c.accept(c.request.id, c.request.segment, c.request.from)
		return
	}
	if c.redial.At == 0 {
		c.reconnect()
	}
}

// mayDial says that there is a reason to connect and that nothing forbids it.
func (c *Conn) mayDial() bool {
	return !c.halt.on && (c.wanted() || c.halt.again > 0)
}

// missed notes that an attempt to connect has failed.
func (h *halting) missed() (last bool) {
	if h.again == 0 || h.on {
		return false
	}
	h.again--
	return h.again == 0
}
