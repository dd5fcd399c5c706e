package conn

// tcpAttempt is an attempt to connect a lane.
type tcpAttempt struct {
	id     uint64
	poke   bool  // it asks the peer to connect
	doomed error // why what it brings ends at once
}

func (l *tcpLane) dial() {
	c := l.c
	c.dialID++
	l.attempt.id, l.attempt.doomed = c.dialID, nil
	l.attempt.poke = !c.smaller
	l.setState(Connecting)
	if l.n == 0 {
		c.since = c.now
	}
	if err := c.host.Dial(c, l.n, l.attempt.id, c.peer.known && c.chosen); err != nil {
		l.failed(err)
	}
}

// HandleFailed tells the TCP that an attempt of Dial has failed.
func (c *TCP) HandleFailed(now int64, lane int, id uint64, err error) {
	c.calls.called(callDrive)
	c.now = now
	if l := &c.lanes[lane]; l.state == Connecting && l.attempt.id == id {
		l.failed(err)
	}
}

// abandon ends an attempt: its answer comes too late.
func (l *tcpLane) abandon(why error) {
	l.attempt.id = 0
	l.failed(why)
}

func (l *tcpLane) failed(err error) {
	c := l.c
	l.setState(Down)
	if l.n == 0 {
		c.since = c.now
	}
	if c.fault(err) {
		l.why, c.why = err, err
		c.stats.ConnectFailed++
		c.host.Trace(c, EventConnectFailed, err)
	}
	l.retryLater()
}

// retryLater sets the time of the next attempt.
func (l *tcpLane) retryLater() {
	c := l.c
	if c.closed {
		return
	}
	if l.redial.ceiling == 0 {
		l.redial.ceiling = c.cfg.MinBackoff
	}
	ceiling := l.redial.ceiling
	l.redial.later(c.now, c.cfg.Rand(), c.cfg.MaxBackoff)
	if l.attempt.poke { // the answer takes a while
		l.redial.at += ceiling
	}
}
