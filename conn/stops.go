package conn

import (
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
)

// portStop is a port of the peer that refused a message. While stopped it
// keeps the refused messages and those behind them. It is released when the
// peer's congestion map shows the port free and nothing is in flight to it
// any more: what was, was refused as well and must go first. A released one
// waits for the next message to the port, to flag it RESUME.
type portStop struct {
	port     uint16
	nth      int // in Conn.stops
	stopped  bool
	inflight int     // messages on unacked and rtx to the port
	refused  msgList // by sequence
	held     msgList // behind them, not sent since
}

func (st *portStop) lists() [2]*msgList { return [2]*msgList{&st.refused, &st.held} }

// refused keeps m, which the peer has received and refused, and stops its port.
func (c *Conn) refused(m *Msg) {
	c.stats.Refusals++
	p := &m.priv
	if p.stop != nil {
		p.stop.inflight--
		p.stop = nil
	}
	st := c.stopOf[m.DPort]
	if st == nil {
		st = &portStop{port: m.DPort, nth: len(c.stops)}
		c.stopOf[m.DPort] = st
		c.stops = append(c.stops, st)
	}
	if !st.stopped {
		st.stopped = true
		for _, l := range [...]*msgList{&c.unacked, &c.rtx} {
			for f := l.head; f != nil; f = f.priv.next {
				if f.DPort == m.DPort && f.Internal == 0 && f.priv.stop == nil {
					f.priv.stop = st
					st.inflight++
				}
			}
		}
	}
	p.state, p.seq, p.flags = msgQueued, 0, 0
	// Received means that the operation ahead of it is done: from here on it
	// is a message like any other.
	p.opProven = p.opPosted
	if mutant.On(mutant.RefusedRunsAgain) {
		p.opPosted, p.opLocal = false, false
	}
	st.refused.push(m)
	c.releaseDue = true
}

// holdBack moves m, at the head of the queue, behind the refused messages if
// its port is stopped.
func (c *Conn) holdBack(m *Msg) bool {
	st := c.stopOf[m.DPort]
	if st == nil || !st.stopped || m.Internal != 0 {
		return false
	}
	c.queue.remove(m)
	st.held.push(m)
	return true
}

// release lets stopped ports go on that may.
func (c *Conn) release() {
	c.releaseDue = false
	for i := len(c.stops) - 1; i >= 0; i-- {
		st := c.stops[i]
		if st.stopped && (st.inflight == 0 || mutant.On(mutant.ReleasedEarly)) && !c.remote.Test(st.port) {
			st.stopped = false
			last, first := &st.held, &st.refused
			if mutant.On(mutant.HeldOvertakes) {
				last, first = first, last
			}
			c.queue.prepend(last)
			c.queue.prepend(first)
		}
	}
}

// resumed flags m if it is the first to a released port.
func (c *Conn) resumed(m *Msg) {
	st := c.stopOf[m.DPort]
	if st == nil || st.stopped || m.Internal != 0 {
		return
	}
	m.priv.flags |= wire.FlagResume
	delete(c.stopOf, st.port)
	last := len(c.stops) - 1
	moved := c.stops[last]
	c.stops[st.nth], moved.nth = moved, st.nth
	c.stops[last] = nil
	c.stops = c.stops[:last]
}
