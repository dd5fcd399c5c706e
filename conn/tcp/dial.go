package tcp

import (
	"github.com/rdsd/rdsd/conn"
)

// attempt is an attempt to connect a lane.
type attempt struct {
	id     uint64
	poke   bool  // it asks the peer to connect
	doomed error // why what it brings ends at once
}

func (l *lane) dial() {
	c := l.c
	c.dialID++
	l.attempt.id, l.attempt.doomed = c.dialID, nil
	l.attempt.poke = !c.smaller
	l.setState(conn.Connecting)
	if l.n == 0 {
		c.since = c.now
	}
	if err := c.host.Dial(c, l.n, l.attempt.id, c.peer.known && c.chosen); err != nil {
		l.failed(err)
	}
}

// HandleFailed tells the Conn that an attempt of Dial has failed.
func (c *Conn) HandleFailed(now int64, lane int, id uint64, err error) {
	c.calls.Drive()
	c.now = now
	if l := &c.lanes[lane]; l.state == conn.Connecting && l.attempt.id == id {
		l.failed(err)
	}
}

// abandon ends an attempt: its answer comes too late.
func (l *lane) abandon(why error) {
	l.attempt.id = 0
	l.failed(why)
}

func (l *lane) failed(err error) {
	c := l.c
	l.setState(conn.Down)
	if l.n == 0 {
		c.since = c.now
	}
	if c.fault(err) {
		l.why, c.why = err, err
		c.stats.ConnectFailed++
		c.host.Trace(c, conn.EventConnectFailed, err)
	}
	l.retryLater()
}

// retryLater sets the time of the next attempt.
func (l *lane) retryLater() {
	c := l.c
	if c.closed {
		return
	}
	if l.redial.Ceiling == 0 {
		l.redial.Ceiling = c.cfg.MinBackoff
	}
	ceiling := l.redial.Ceiling
	l.redial.Later(c.now, c.cfg.Rand(), c.cfg.MaxBackoff)
	if l.attempt.poke { // the answer takes a while
		l.redial.At += ceiling
	}
}
