package tcp

import (
	"fmt"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/internal/timer"
	"github.com/rdsd/rdsd/conn/msg"
)

// lane is one lane of a Conn: a TCP connection that comes and goes, and what
// stays over connections.
type lane struct {
	c        *Conn
	n        int
	state    conn.State
	why      error
	attempt  attempt
	redial   timer.Redial
	again    bool // it was up: who connects has to come back
	stream   Stream
	upAt     int64
	lived    bool  // something arrived on this connection
	deadline int64 // of ending
	open     int   // probes that this connection has not answered

	out  sending
	acks acks
	in   receiving
}

func (l *lane) enqueue(m *msg.Msg) {
	m.Track.State = msg.Queued
	m.Track.Seq = l.out.nextTx
	l.out.nextTx += uint64(m.Datagrams()) // of a run each has its own
	l.out.queue.Push(m)
}

func (l *lane) setState(to conn.State) {
	if !l.state.LeadsTo(to) && !(l.state == conn.Down && to == conn.Up) {
		panic(fmt.Sprintf("conn: illegal transition %v to %v", l.state, to))
	}
	l.state = to
}

// wanted says that there is a reason to connect.
func (l *lane) wanted() bool {
	c := l.c
	switch {
	case c.closed, c.halted:
		return false
	case !c.smaller: // ask for the first lane; the peer brings all
		if l.n > 0 || c.up > 0 {
			return false
		}
		for i := range c.lanes {
			if c.lanes[i].out.queue.N > 0 {
				return true
			}
		}
		return false
	case l.n > 0: // one after the other: the peer gives them its lanes in order
		return c.peer.known && c.lanes[l.n-1].state == conn.Up
	}
	if l.again || l.out.queue.N > 0 {
		return true
	}
	for i := range c.lanes {
		if c.lanes[i].out.queue.N > 0 {
			return true
		}
	}
	return false
}

func (l *lane) needFlush() bool {
	switch l.state {
	case conn.Down:
		return l.redial.At == 0 && l.wanted()
	case conn.Up:
		return !l.out.blocked && (l.out.frag != nil || l.out.congRest != nil || l.out.congDue || l.out.queue.Head != nil && !l.waits() && !l.mustNotCut())
	}
	return false
}

func (l *lane) timeout() int64 {
	switch l.state {
	case conn.Down:
		return l.redial.At
	case conn.Up:
		if l.n > 0 && l.c.gate.shut && l.out.queue.N > 0 && l.c.now < l.c.gate.until {
			return timer.Sooner(l.acks.at, l.c.gate.until)
		}
		return l.acks.at
	case conn.Error:
		return l.deadline
	}
	return 0
}

func (l *lane) tick() {
	now := l.c.now
	switch l.state {
	case conn.Down:
		if timer.Due(l.redial.At, now) {
			l.redial.At = 0
			if l.wanted() {
				l.dial()
			}
		}
	case conn.Up:
		if timer.Due(l.acks.at, now) {
			before := l.out.lastAck
			l.checkAcks()
			if l.out.lastAck != before {
				l.acks.wait = firstAckWait
			} else {
				l.acks.wait = min(2*l.acks.wait, lastAckWait)
			}
			l.acks.at = 0
			l.armAck()
		}
	case conn.Error:
		if timer.Due(l.deadline, now) {
			l.down(false)
		}
	}
}
