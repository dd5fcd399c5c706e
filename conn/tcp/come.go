package tcp

import "github.com/rdsd/rdsd/conn"

// How connections come to lanes: those that were dialed, and the peer's.

// HandleConnected gives an attempt of Dial its stream. chosen says that its source
// port is the lane's. A stream that is not wanted any more is read to its end, too:
// the peer may have sent messages on it, and holds for delivered what its TCP could
// hand to ours.
func (c *Conn) HandleConnected(now int64, lane int, id uint64, s Stream, chosen bool) {
	c.calls.Drive()
	c.now = now
	l := &c.lanes[lane]
	if l.state != conn.Connecting || l.attempt.id != id { // asked the peer to connect, or is of a closed Conn
		s.Close(true)
		return
	}
	if l.attempt.poke { // that is all it was for: the peer has seen us, and connects
		s.Close(false)
		l.failed(ErrPoked)
		return
	}
	if !c.peer.known {
		c.chosen = chosen
	}
	l.start(s)
	if l.attempt.doomed != nil {
		l.finishStream(l.attempt.doomed)
	}
}

// askEveryNs is the time between two attempts to find out which lanes are dead.
const askEveryNs = 1_000_000_000

// HandleAccept offers a connection that the peer opened from source port, and returns
// the lane that takes it. The owner has handed up all that had arrived on the other
// streams. An error says why the owner has to reset the connection. Messages that
// the peer has sent on it are then lost, because the peer holds for delivered what
// our TCP has acknowledged.
func (c *Conn) HandleAccept(now int64, s Stream, port uint16) (int, error) {
	c.calls.Drive()
	c.now = now
	switch {
	case c.closed:
		return 0, conn.ErrClosed
	case c.smaller:
		// It asks us to connect. An attempt that is under way, or was made just
		// now, is the answer.
		l := &c.lanes[0]
		l.again = true
		if l.state == conn.Down && l.redial.Ceiling <= 64*c.cfg.MinBackoff {
			l.redial.At = 0
		}
		return 0, ErrPoked
	}
	if l := c.freeLane(port); l != nil {
		if l.state == conn.Connecting {
			l.abandon(ErrPoked)
		}
		l.redial.At = 0
		l.start(s)
		if c.halted {
			l.finishStream(conn.ErrHalted)
		}
		return l.n, nil
	}
	// The peer has lost a connection that we believe in. Whatever we send on it
	// brings the reset that says so.
	if c.asked == 0 || now-c.asked > askEveryNs {
		c.asked = now
		for i := range c.lanes[:c.taken] {
			c.lanes[i].out.congDue = true
		}
	}
	return 0, ErrLaneBusy
}

// freeLane is the lane for a connection from port: the one that the port says,
// with peers that choose it so, else the first that is down. What such a peer had
// before is no more; what had arrived on it was read, see HandleAccept.
func (c *Conn) freeLane(port uint16) *lane {
	if c.peer.bySPort {
		l := &c.lanes[int(port)&(c.n-1)]
		if l.stream != nil {
			l.broken(conn.ErrReplaced)
			l.down(true)
		}
		return l
	}
	for i := range c.lanes[:c.taken] {
		if l := &c.lanes[i]; l.state == conn.Down || l.state == conn.Connecting {
			return l
		}
	}
	return nil
}

// start makes a lane Up on s.
func (l *lane) start(s Stream) {
	c := l.c
	l.setState(conn.Up)
	l.stream, l.out.written, l.out.blocked, l.lived, l.upAt = s, 0, false, false, c.now
	l.in.hdrLen, l.in.left, l.why = 0, 0, nil
	l.again = true
	c.met = true
	if c.up++; c.up == 1 {
		l.out.congDue = true
		c.since = c.now
	}
	if !c.told {
		c.told = true
		c.host.Trace(c, "up", nil)
		c.host.PeerUp(c)
	}
	if l.n >= c.n { // nothing is sent by it, see learn
		return
	}
	l.open = 0
	l.probe()
}

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
