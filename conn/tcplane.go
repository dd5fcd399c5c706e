package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
)

// tcpLane is one lane of a TCP: a TCP connection that comes and goes, and what
// stays over connections.
type tcpLane struct {
	c      *TCP
	n      int
	state  State
	stream Stream
	id     uint64 // of the attempt
	poke   bool   // the attempt asks the peer to connect
	again  bool   // it was up: who connects has to come back
	doomed error  // why what the attempt brings ends at once
	upAt   int64
	lived  bool // something arrived on this connection
	pinged *Msg // the last probe, unless it is something else by now
	probes int  // sent, less what was answered
	why    error

	deadline int64 // of ending
	backoff  int64 // ceiling of the next delay, 0: at once
	retryAt  int64

	// Sending: queue, the message that is half written, and what was written.
	nextTx    uint64
	lastAck   uint64
	queue     msgList
	unacked   msgList
	frag      *Msg
	fragOff   int // bytes of it written, header included
	fragHdr   [wire.HeaderLen]byte
	congDirty bool
	congRest  []byte // of a congestion frame half written
	congBuf   []byte
	blocked   bool // until HandleRoom
	written   uint64
	ackAt     int64
	ackWait   int64

	// Receiving: a header, then its payload.
	hdr    [wire.HeaderLen]byte
	hdrLen int
	h      wire.Header
	body   bodyKind
	left   int    // payload bytes to come
	dst    []byte // where the rest of them goes
	token  any
	rxCong []byte
	congAt int64 // when the last map came, 0: none
	rxLast uint64
}

// bodyKind says what becomes of a payload.
type bodyKind uint8

const (
	bodySkip bodyKind = iota // nothing
	bodyPlace
	bodyCong
)

const (
	gateNs     = 1_000_000_000
	endNs      = 30_000_000_000
	askEveryNs = 1_000_000_000
)

func (l *tcpLane) enqueue(m *Msg) {
	m.priv.state = msgQueued
	m.priv.seq = l.nextTx
	l.nextTx++
	l.queue.push(m)
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
	case c.closed:
		return false
	case !c.smaller: // ask for the first lane; the peer brings all
		if l.n > 0 || c.up > 0 {
			return false
		}
		for i := range c.lanes {
			if c.lanes[i].queue.n > 0 {
				return true
			}
		}
		return false
	case l.n > 0: // one after the other: the peer gives them its lanes in order
		return c.known && c.lanes[l.n-1].state == Up
	}
	if l.again || l.queue.n > 0 {
		return true
	}
	for i := range c.lanes {
		if c.lanes[i].queue.n > 0 {
			return true
		}
	}
	return false
}

func (l *tcpLane) needFlush() bool {
	switch l.state {
	case Down:
		return l.retryAt == 0 && l.wanted()
	case Up:
		return !l.blocked && (l.frag != nil || l.congRest != nil || l.congDirty || l.queue.head != nil && !l.waits())
	}
	return false
}

// waits says that messages of this lane have to wait for earlier ones of the
// first: those its sockets sent before the lanes were known. The answer to a
// probe behind them says that the peer has taken them; if it answers none, acks
// and some time have to do.
func (l *tcpLane) waits() bool {
	c := l.c
	if !c.gated || l.n == 0 {
		return false
	}
	if c.now < c.gateEnd {
		return true
	}
	first := &c.lanes[0]
	m := first.unacked.head
	if m == nil {
		m = first.frag
	}
	if m == nil {
		m = first.queue.head
	}
	if m != nil && m.priv.seq < c.gate {
		return true
	}
	c.gated = false
	return false
}

func (l *tcpLane) dial() {
	c := l.c
	c.dialID++
	l.id, l.doomed = c.dialID, nil
	l.poke = !c.smaller
	l.setState(Connecting)
	if l.n == 0 {
		c.since = c.now
	}
	if err := c.host.Dial(c, l.n, l.id, c.known && c.chosen); err != nil {
		l.failed(err)
	}
}

// HandleFailed tells the TCP that an attempt of Dial has failed.
func (c *TCP) HandleFailed(now int64, lane int, id uint64, err error) {
	c.calls.called(callDrive)
	c.now = now
	if l := &c.lanes[lane]; l.state == Connecting && l.id == id {
		l.failed(err)
	}
}

// abandon ends an attempt: its answer comes too late.
func (l *tcpLane) abandon(why error) {
	l.id = 0
	l.failed(why)
}

func (l *tcpLane) failed(err error) {
	c := l.c
	l.setState(Down)
	if l.n == 0 {
		c.since = c.now
	}
	if !errors.Is(err, ErrPoked) {
		l.why, c.why = err, err
		c.stats.ConnectFailed++
		c.host.Trace(c, EventConnectFailed, err)
	}
	l.retryLater()
}

// retryLater sets the time of the next attempt: random below a ceiling that
// doubles (net/rds/threads.c rds_queue_reconnect).
func (l *tcpLane) retryLater() {
	c := l.c
	if c.closed {
		return
	}
	if l.backoff == 0 {
		l.backoff = c.cfg.MinBackoff
	}
	l.retryAt = c.now + 1 + int64(c.cfg.Rand()%uint64(l.backoff))
	if l.poke { // the answer takes a while
		l.retryAt += l.backoff
	}
	l.backoff = min(2*l.backoff, c.cfg.MaxBackoff)
}

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
	if l.c.closed {
		wait = l.c.cfg.CloseTimeout
	}
	l.deadline = l.c.now + wait
}

// protocolError ends the connection at once. The next attempt waits: the peer
// may do it again.
func (l *tcpLane) protocolError(err error) {
	l.c.stats.ProtocolErrors++
	l.broken(fmt.Errorf("%w: %w", ErrProtocol, err))
	l.backoff = l.c.cfg.MaxBackoff
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
		err = ErrDisconnected
	} else {
		err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
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
	// What is going to be sent again must not arrive by the old connection as
	// well, beside the new one.
	l.stream.Close(abort || l.unacked.n > 0 || l.frag != nil)
	l.stream = nil
	if m := l.frag; m != nil {
		l.frag = nil
		if m.priv.state == msgEnding {
			c.finish(m, m.priv.outcome)
		} else {
			l.unacked.push(m)
		}
	}
	for m := l.unacked.head; m != nil; m = m.priv.next {
		m.priv.state = msgQueued
		m.priv.flags |= wire.FlagRetransmitted
	}
	l.queue.prepend(&l.unacked)
	l.congRest, l.congDirty = nil, false
	l.ackAt, l.deadline = 0, 0
	if l.token != nil {
		c.host.Abort(c, l.token)
	}
	l.token, l.dst, l.left, l.hdrLen = nil, nil, 0, 0
	l.setState(Down)
	if l.lived {
		l.backoff = 0
	}
	if c.smaller && l.backoff > 0 { // it was not up for long
		l.retryLater()
	} else {
		l.retryAt = 0
		if !c.smaller && !c.closed { // the peer connects; ask if it does not
			l.backoff = max(l.backoff, 16*c.cfg.MinBackoff)
			l.retryAt = c.now + l.backoff
		}
	}
	l.backoff = max(l.backoff, c.cfg.MinBackoff)
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
		c.doubt = doubt{}
		if !c.remote.Empty() {
			c.remote.Reset()
			c.host.Congestion(c, &c.remote)
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

func (l *tcpLane) timeout() int64 {
	switch l.state {
	case Down:
		return l.retryAt
	case Up:
		if l.n > 0 && l.c.gated && l.queue.n > 0 && l.c.now < l.c.gateEnd {
			return sooner(l.ackAt, l.c.gateEnd)
		}
		return l.ackAt
	case Error:
		return l.deadline
	}
	return 0
}

func (l *tcpLane) tick() {
	now := l.c.now
	switch l.state {
	case Down:
		if due(l.retryAt, now) {
			l.retryAt = 0
			if l.wanted() {
				l.dial()
			}
		}
	case Up:
		if due(l.ackAt, now) {
			before := l.lastAck
			l.checkAcks()
			if l.lastAck != before {
				l.ackWait = firstAckWait
			} else {
				l.ackWait = min(2*l.ackWait, lastAckWait)
			}
			l.ackAt = 0
			l.armAck()
		}
	case Error:
		if due(l.deadline, now) {
			l.down(false)
		}
	}
}
