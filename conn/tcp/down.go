package tcp

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/internal/timer"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// endNs is how long the peer may take to end its side of a connection.
const endNs = 30_000_000_000

// finishStream ends a connection in order: what the peer has sent is still
// received, then its end.
func (l *lane) finishStream(why error) {
	l.stream.Finish()
	l.broken(why)
}

// broken stops sending. The connection is Down when HandleClosed says that
// everything was read.
func (l *lane) broken(why error) {
	c := l.c
	if l.state != conn.Up {
		return
	}
	l.why, c.why = why, why
	l.setState(conn.Error)
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
func (l *lane) awaitEnd() {
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
func (l *lane) protocolError(err error) {
	l.c.stats.ProtocolErrors++
	l.broken(fmt.Errorf("%w: %w", conn.ErrProtocol, err))
	l.redial.Ceiling = l.c.cfg.MaxBackoff
	l.lived = false
	l.down(true)
}

// HandleClosed tells the Conn that a lane's stream has ended, after all its bytes were
// handed up. err is nil if the peer ended it in order.
func (c *Conn) HandleClosed(now int64, lane int, err error) {
	c.calls.Drive()
	c.now = now
	l := &c.lanes[lane]
	if err == nil {
		err = verbs.ErrEnded
	}
	err = fmt.Errorf("%w: %w", conn.ErrDisconnected, err)
	switch l.state {
	case conn.Up:
		l.broken(err)
		l.down(false)
	case conn.Error:
		l.down(false)
	}
}

// down lets go of the stream. What the peer's TCP has not acked goes first on
// the next connection, flagged.
func (l *lane) down(abort bool) {
	c := l.c
	l.checkAcks()
	// What was written must not arrive by the old connection as well, beside the new
	// one: neither what is going to be sent again, nor what has ended. The peer would
	// take what is older for what is newer, and no more know what it has received.
	left, _ := l.stream.Unacked()
	l.stream.Close(abort || left > 0 || l.out.unacked.N > 0 || l.out.frag != nil)
	l.stream = nil
	if m := l.out.frag; m != nil {
		l.out.frag = nil
		if m.Track.State == msg.Ending {
			c.finish(m, m.Track.Outcome)
		} else {
			l.out.unacked.Push(m)
		}
	}
	for m := l.out.unacked.Head; m != nil; m = m.Track.Next {
		m.Track.State = msg.Queued
		m.Track.Flags |= wire.FlagRetransmitted
	}
	l.out.queue.Prepend(&l.out.unacked)
	l.endHandshake()
	if l.n >= c.n { // pongs, and nobody brings that lane back for them
		c.endAll(&l.out.queue)
	}
	l.out.congRest, l.out.congDue = nil, false
	l.acks.at, l.deadline = 0, 0
	if l.in.token != nil {
		c.host.Abort(c, l.in.token)
	}
	l.in.token, l.in.dst, l.in.left, l.in.hdrLen = nil, nil, 0, 0
	l.setState(conn.Down)
	if l.lived {
		l.redial.Ceiling = 0
	}
	if c.smaller && l.redial.Ceiling > 0 { // it was not up for long
		l.retryLater()
	} else {
		l.redial.At = 0
		if !c.smaller && !c.closed { // the peer connects; ask if it does not
			l.redial.Ceiling = max(l.redial.Ceiling, 16*c.cfg.MinBackoff)
			l.redial.At = c.now + l.redial.Ceiling
		}
	}
	l.redial.Ceiling = max(l.redial.Ceiling, c.cfg.MinBackoff)
	if l.n < c.n { // one of those beyond n may be what came in its place: the peer is to connect again
		for i := range c.lanes[c.n:c.taken] {
			if x := &c.lanes[c.n+i]; x.state == conn.Up {
				x.finishStream(conn.ErrReplaced)
			}
		}
	}
	if c.told && c.up == 0 && !c.anyError() {
		c.told = false
		// As a conn.Conn: who waits for relief must not wait for a connection that
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

func (c *Conn) anyError() bool {
	for i := range c.lanes[:c.taken] {
		if c.lanes[i].state == conn.Error {
			return true
		}
	}
	return false
}

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
