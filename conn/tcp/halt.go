package tcp

import (
	"errors"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/internal/timer"
)

// haltEndNs is how long a peer may take to end its side of a connection that Halt ends.
const haltEndNs = 1_000_000_000

// Halt ends all lanes in order and has the Conn make no other connection until Resume. What the
// peer has sent is still received, up to its end: the peer holds it for delivered. A peer that
// does not end its side in time is cut off. When State is Down nothing uses a message's memory,
// and no message is half received.
func (c *Conn) Halt(now int64) {
	c.calls.Drive()
	c.now, c.halted = now, true
	for i := range c.lanes[:c.taken] {
		l := &c.lanes[i]
		switch l.state {
		case conn.Up:
			l.finishStream(conn.ErrHalted)
		case conn.Connecting:
			if l.attempt.doomed = conn.ErrHalted; l.attempt.poke {
				l.abandon(conn.ErrHalted)
			}
		case conn.Error:
			l.deadline = timer.Sooner(l.deadline, now+haltEndNs)
		}
	}
}

// Resume ends what Halt has begun.
func (c *Conn) Resume(now int64) {
	c.calls.Drive()
	c.now, c.halted = now, false
}

// fault reports whether err shows that the peer is not reached.
func (c *Conn) fault(err error) bool {
	return !errors.Is(err, ErrPoked) && !c.halted
}
