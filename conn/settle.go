package conn

import (
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// settlement is what decides the fate of posted messages after a reconnect. A message
// that HELLO's ack covers was received. Whether it was accepted is known when the
// notices that HELLO spoke of have arrived: until then acks settle nothing.
type settlement struct {
	on         bool   // acks settle nothing yet
	gate       uint64 // while on: notices up to here are still to come
	acked      uint64 // highest ack seen
	expires    int64  // when posted operations become Unknown, 0: none are open
	unanswered bool   // an ack covered an atomic whose result had not come
}

// hasPostedOps says that posted operations wait for their fate. A message that carries its
// atomic waits for the peer as a datagram does, however long that takes.
func (c *Conn) hasPostedOps() bool {
	if hasPostedOp(&c.out.rtx) || hasPostedOp(&c.out.queue) {
		return true
	}
	for _, st := range c.stops.keeping() {
		if hasPostedOp(&st.refused) || hasPostedOp(&st.behind) {
			return true
		}
	}
	return false
}

func hasPostedOp(l *msg.List) bool {
	for m := l.Head; m != nil; m = m.Track.Next {
		if m.Track.Op.Posted() && !m.Carried() {
			return true
		}
	}
	return false
}

// resume goes on with the same instance of the peer: what it has received is
// covered and settles when its notices are here; operations it has not received
// are dropped; the rest is sent again.
func (c *Conn) resume() {
	// A peer that does not know this instance has nothing to tell it: notices to
	// an earlier one will not come.
	ack := uint64(0)
	c.settling.gate = 0
	if c.link.hello.AckInst == c.cfg.Instance {
		ack, c.settling.gate = c.link.hello.Ack, c.link.hello.Notice
	}
	if !c.carrying() {
		c.dropCarried(ack)
	}
	for m := range c.out.rtx.All() {
		switch {
		case m.Track.Seq <= ack:
			c.out.rtx.Leave(m)
			m.Track.State = msg.Posted
			c.out.unacked.Push(m)
		case m.OpOpen():
			c.out.rtx.Remove(m)
			c.end(m, msg.Dropped)
		case m.Track.Posted:
			m.Track.Flags |= wire.FlagRetransmitted
			if m.Carried() { // the peer has not run it
				m.Track.Posted = false
			}
		}
	}
	c.settling.acked = max(c.settling.acked, ack)
	c.settling.on = true
	c.checkGate()
}

// forget ends what belonged to the peer's old instance; what was never posted
// is for the new one.
func (c *Conn) forget() {
	for x := range c.cuts.All() {
		if x.Run.Track.Posted {
			c.cancelCut(x, msg.Lost)
		}
	}
	for m := range c.out.rtx.All() {
		switch {
		case m.Track.Own && m.Internal != 0: // a notice to the old instance
			c.out.rtx.Remove(m)
			c.end(m, msg.Lost)
		case m.Track.Op.Posted(): // ends below
		case m.Track.Posted:
			c.out.rtx.Remove(m)
			c.end(m, msg.Lost)
		}
	}
	c.endAll(&c.out.notices, msg.Lost)
	// A refused operation's data went to the old instance. Refused datagrams
	// are still here, and go to the new one. A refused message whose atomic it carries
	// was not delivered, and its atomic did not run.
	c.CancelMatching(func(m *msg.Msg) bool { return m.Track.Op.Posted() && m.NotRun() }, msg.Dropped)
	c.endPostedOps(func(*msg.Msg) bool { return true }, msg.Unknown)
	c.settling.on = false
	c.settling.expires = 0
	c.clearCong()
}

// checkGate starts to settle once every notice HELLO spoke of has arrived.
func (c *Conn) checkGate() {
	if c.settling.on && c.in.last >= c.settling.gate {
		c.settling.on = false
		c.settling.expires = 0
		c.dirty = true
		c.settle()
	}
}

// settle ends the messages acked so far.
func (c *Conn) settle() { c.settleTo(c.settling.acked) }

// settleTo ends the messages up to seq, which the peer has accepted.
func (c *Conn) settleTo(seq uint64) {
	for m := c.out.unacked.Head; m != nil && m.Track.Seq <= seq; m = c.out.unacked.Head {
		c.out.unacked.Remove(m)
		if m.Track.Atomic == msg.Carried {
			c.unanswered(m)
			continue
		}
		c.end(m, msg.Acked)
	}
}

// settleExpired gives up waiting for the fate of posted operations.
func (c *Conn) settleExpired() {
	c.settling.expires = 0
	c.endPostedOps(func(m *msg.Msg) bool { return !m.Carried() }, msg.Unknown)
}

// endPostedOps ends every posted operation that has not settled and for which match is
// true, refused ones that wait to be sent again included.
func (c *Conn) endPostedOps(match func(*msg.Msg) bool, o msg.Outcome) {
	c.CancelMatching(func(m *msg.Msg) bool { return m.Track.Op.Posted() && match(m) }, o)
}

// handleAck retires what the peer has received, once the body that came with
// the ack has been handled.
func (c *Conn) handleAck(ack uint64) {
	if ack > c.settling.acked {
		c.rtt.acked(ack, c.now)
		c.settling.acked = ack
		if !c.settling.on {
			c.settle()
		}
		if c.out.unacked.N == 0 && c.out.untilAsk > 0 { // 0: the next message asks, as Probe wants
			c.out.untilAsk = askEvery
		}
	}
}
