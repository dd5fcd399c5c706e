package conn

import "github.com/rdsd/rdsd/conn/wire"

// What a host needs to limit how much one peer gives it to do. Credits limit how
// much is under way at a time, not how often.

// Arrived counts what a peer has sent since the last TakeArrived.
type Arrived struct {
	Messages int // whole messages; duplicates, acks and congestion maps are not messages
	// Control is work that serves no socket, in units of about one message:
	// internal messages, pings, messages that were refused or found no socket,
	// duplicates, acks that say nothing new. A congestion map counts 8.
	Control int
}

// congWork is the work of a congestion map of 8 KiB.
const congWork = 8

// TakeArrived returns what has arrived since the last call of TakeArrived.
func (c *Conn) TakeArrived() (a Arrived) {
	a, c.arrived = c.arrived, Arrived{}
	return a
}

// TakeArrived returns what has arrived since the last call of TakeArrived.
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

// Hold(true) keeps back the credits that are owed to the peer, so that the peer soon
// has none left and waits. Hold(false) ends that. It has no effect on a kernel, which
// uses no credits.
func (c *Conn) Hold(on bool) {
	c.calls.called(callNote)
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
