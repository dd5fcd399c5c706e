package conn

import "github.com/rdsd/rdsd/conn/wire"

// What a host needs to limit how much one peer gives it to do. Credits limit how
// much is under way at a time, not how often.

// Arrived is what a peer has sent since it was asked last.
type Arrived struct {
	Messages int // whole ones, for sockets or not; duplicates, acks and congestion maps are none
	// Control is what is for no socket, in units of about a message's work:
	// internal messages, pings, messages refused or for nobody, duplicates, acks
	// that say nothing new, and congestion maps at congWork each.
	Control int
}

// congWork is the work of a congestion map of 8 KiB.
const congWork = 8

// TakeArrived returns what has arrived since its last call.
func (c *Conn) TakeArrived() (a Arrived) {
	a, c.arrived = c.arrived, Arrived{}
	return a
}

// TakeArrived is Conn.TakeArrived.
func (c *TCP) TakeArrived() (a Arrived) {
	a, c.arrived = c.arrived, Arrived{}
	return a
}

// useless counts an ack that says nothing new and returns no credit.
func (c *Conn) useless(h *wire.Header) {
	if h.Ack <= c.ackMax && h.Credit == 0 {
		c.arrived.Control++
	}
}

// Hold keeps the credits that are owed to the peer, until it is called with
// false: the peer soon has none and waits. It has no effect on a kernel, which
// knows no credits.
func (c *Conn) Hold(on bool) {
	if c.held == on {
		return
	}
	c.held = on
	c.dirty = true
}

// grantable is how many credits may be returned now.
func (c *Conn) grantable() uint32 {
	if c.held {
		return 0
	}
	return c.owed
}

// EachStream calls f for the connections that are up.
func (c *TCP) EachStream(f func(Stream)) {
	for i := range c.lanes {
		if s := c.lanes[i].stream; s != nil {
			f(s)
		}
	}
}
