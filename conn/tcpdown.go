package conn

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/verbs"
)

// endNs is how long the peer may take to end its side of a connection.
const endNs = 30_000_000_000

// finishStream ends a connection in order: what the peer has sent is still
// received, then its end.
func (l *tcpLane) finishStream(why error) {
	l.stream.Finish()
	l.broken(why)
}

// broken stops sending. The connection is Down when HandleClosed says that
// everything was read.
func (l *tcpLane) broken(why error) {
	c := l.c
	if l.state != Up {
		return
	}
	l.why, c.why = why, why
	l.setState(Error)
	l.awaitEnd()
	c.stats.ConnReset++
	if c.up--; c.up == 0 {
		c.since = c.now
		c.host.Trace(c, "down", why)
	}
}

// awaitEnd gives the peer time to end its side. What it sends until then counts
// as arrived there, so a connection is cut off late: when the peer's host is gone,
// which TCP finds out by itself, or its RDS has stopped.
func (l *tcpLane) awaitEnd() {
	wait := int64(endNs)
	switch {
	case l.c.closed:
		wait = l.c.cfg.CloseTimeout
	case l.c.halted:
		wait = haltEndNs
	}
	l.deadline = l.c.now + wait
}

// protocolError ends the connection at once. The next attempt waits: the peer
// may do it again.
func (l *tcpLane) protocolError(err error) {
	l.c.stats.ProtocolErrors++
	l.broken(fmt.Errorf("%w: %w", ErrProtocol, err))
	l.redial.ceiling = l.c.cfg.MaxBackoff
	l.lived = false
	l.down(true)
}

// HandleClosed tells the TCP that a lane's stream has ended, after all its bytes were
// handed up. err is nil if the peer ended it in order.
func (c *TCP) HandleClosed(now int64, lane int, err error) {
	c.calls.called(callDrive)
	c.now = now
	l := &c.lanes[lane]
	if err == nil {
		err = verbs.ErrEnded
	}
	err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	switch l.state {
	case Up:
		l.broken(err)
		l.down(false)
	case Error:
		l.down(false)
	}
}

// down lets go of the stream. What the peer's TCP has not acked goes first on
// the next connection, flagged.
func (l *tcpLane) down(abort bool) {
	c := l.c
	l.checkAcks()
	// What was written must not arrive by the old connection as well, beside the new
	// one: neither what is going to be sent again, nor what has ended. The peer would
	// take what is older for what is newer, and no more know what it has received.
	left, _ := l.stream.Unacked()
	late := left > 0 && !mutant.On(mutant.TCPEndedArrives)
	l.stream.Close(abort || late || l.out.unacked.n > 0 || l.out.frag != nil)
	l.stream = nil
	if m := l.out.frag; m != nil {
		l.out.frag = nil
		if m.priv.state == msgEnding {
			c.finish(m, m.priv.outcome)
		} else {
			l.out.unacked.push(m)
		}
	}
	for m := l.out.unacked.head; m != nil; m = m.priv.next {
		m.priv.state = msgQueued
		m.priv.flags |= wire.FlagRetransmitted
	}
	l.out.queue.prepend(&l.out.unacked)
	if l.n >= c.n && !mutant.On(mutant.TCPPongKept) { // pongs, and nobody brings that lane back for them
		c.endAll(&l.out.queue)
	}
	l.out.congRest, l.out.congDue = nil, false
	l.acks.at, l.deadline = 0, 0
	if l.in.token != nil {
		c.host.Abort(c, l.in.token)
	}
	l.in.token, l.in.dst, l.in.left, l.in.hdrLen = nil, nil, 0, 0
	l.setState(Down)
	if l.lived {
		l.redial.ceiling = 0
	}
	if c.smaller && l.redial.ceiling > 0 { // it was not up for long
		l.retryLater()
	} else {
		l.redial.at = 0
		if !c.smaller && !c.closed { // the peer connects; ask if it does not
			l.redial.ceiling = max(l.redial.ceiling, 16*c.cfg.MinBackoff)
			l.redial.at = c.now + l.redial.ceiling
		}
	}
	l.redial.ceiling = max(l.redial.ceiling, c.cfg.MinBackoff)
	if l.n < c.n { // one of those beyond n may be what came in its place: the peer is to connect again
		for i := range c.lanes[c.n:c.taken] {
			if x := &c.lanes[c.n+i]; x.state == Up {
				x.finishStream(ErrReplaced)
			}
		}
	}
	if c.told && c.up == 0 && !c.anyError() {
		c.told = false
		// As a Conn: who waits for relief must not wait for a connection that
		// nobody makes.
		c.cong.doubt = doubt{}
		if !c.cong.remote.Empty() {
			c.cong.remote.Reset()
			c.host.Congestion(c, &c.cong.remote)
		}
		c.host.PeerDown(c, l.why)
	} else { // a map that was on its way goes again
		c.sendCong()
	}
}

func (c *TCP) anyError() bool {
	for i := range c.lanes[:c.taken] {
		if c.lanes[i].state == Error {
			return true
		}
	}
	return false
}
