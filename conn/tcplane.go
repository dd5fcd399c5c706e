package conn

import (
	"fmt"
)

// tcpLane is one lane of a TCP: a TCP connection that comes and goes, and what
// stays over connections.
type tcpLane struct {
	c        *TCP
	n        int
	state    State
	why      error
	attempt  tcpAttempt
	redial   redial
	again    bool // it was up: who connects has to come back
	stream   Stream
	upAt     int64
	lived    bool  // something arrived on this connection
	deadline int64 // of ending
	pings    tcpPings

	out  tcpOut
	acks tcpAcks
	in   tcpIn
}

func (l *tcpLane) enqueue(m *Msg) {
	m.priv.state = msgQueued
	m.priv.seq = l.out.nextTx
	l.out.nextTx += uint64(m.datagrams()) // of a run each has its own
	l.out.queue.push(m)
}

func (l *tcpLane) setState(to State) {
	if !legal[l.state][to] && !(l.state == Down && to == Up) {
		panic(fmt.Sprintf("conn: illegal transition %v to %v", l.state, to))
	}
	l.state = to
}

// wanted says that there is a reason to connect.
func (l *tcpLane) wanted() bool {
	c := l.c
	switch {
	case c.closed, c.halted:
		return false
	case !c.smaller: // ask for the first lane; the peer brings all
		if l.n > 0 || c.up > 0 {
			return false
		}
		for i := range c.lanes {
			if c.lanes[i].out.queue.n > 0 {
				return true
			}
		}
		return false
	case l.n > 0: // one after the other: the peer gives them its lanes in order
		return c.peer.known && c.lanes[l.n-1].state == Up
	}
	if l.again || l.out.queue.n > 0 {
		return true
	}
	for i := range c.lanes {
		if c.lanes[i].out.queue.n > 0 {
			return true
		}
	}
	return false
}

func (l *tcpLane) needFlush() bool {
	switch l.state {
	case Down:
		return l.redial.at == 0 && l.wanted()
	case Up:
		return !l.out.blocked && (l.out.frag != nil || l.out.congRest != nil || l.out.congDue || l.out.queue.head != nil && !l.waits() && !l.mustNotCut())
	}
	return false
}

func (l *tcpLane) timeout() int64 {
	switch l.state {
	case Down:
		return l.redial.at
	case Up:
		if l.n > 0 && l.c.gate.shut && l.out.queue.n > 0 && l.c.now < l.c.gate.until {
			return sooner(l.acks.at, l.c.gate.until)
		}
		return l.acks.at
	case Error:
		return l.deadline
	}
	return 0
}

func (l *tcpLane) tick() {
	now := l.c.now
	switch l.state {
	case Down:
		if due(l.redial.at, now) {
			l.redial.at = 0
			if l.wanted() {
				l.dial()
			}
		}
	case Up:
		if due(l.acks.at, now) {
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
	case Error:
		if due(l.deadline, now) {
			l.down(false)
		}
	}
}
