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
	nth      int // in portStops.list
	stopped  bool
	inflight int     // messages on unacked and rtx to the port
	refused  msgList // by sequence
	held     msgList // behind them, not sent since
}

func (st *portStop) lists() [2]*msgList { return [2]*msgList{&st.refused, &st.held} }

// portStops are the ports of the peer that have refused a message and were not
// released since.
type portStops struct {
	list []*portStop
	of   map[uint16]*portStop
	due  bool // a port may have become free to be released
}

// refused keeps m, which the peer has received and refused, and stops its port.
func (c *Conn) refused(m *Msg) {
	c.stats.Refusals++
	p := &m.priv
	if p.stop != nil {
		p.stop.inflight--
		p.stop = nil
	}
	st := c.stops.of[m.DPort]
	if st == nil {
		st = &portStop{port: m.DPort, nth: len(c.stops.list)}
		c.stops.of[m.DPort] = st
		c.stops.list = append(c.stops.list, st)
	}
	if !st.stopped {
		st.stopped = true
		for _, l := range [...]*msgList{&c.out.unacked, &c.out.rtx} {
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
	c.stops.due = true
}

// holdBack moves m, at the head of the queue, behind the refused messages if
// its port is stopped.
func (c *Conn) holdBack(m *Msg) bool {
	st := c.stops.of[m.DPort]
	if st == nil || !st.stopped || m.Internal != 0 {
		return false
	}
	c.out.queue.remove(m)
	st.held.push(m)
	return true
}

// release lets stopped ports go on that may.
func (c *Conn) release() {
	c.stops.due = false
	for i := len(c.stops.list) - 1; i >= 0; i-- {
		st := c.stops.list[i]
		if st.stopped && (st.inflight == 0 || mutant.On(mutant.ReleasedEarly)) && !c.cong.remote.Test(st.port) {
			st.stopped = false
			last, first := &st.held, &st.refused
			if mutant.On(mutant.HeldOvertakes) {
				last, first = first, last
			}
			c.out.queue.prepend(last)
			c.out.queue.prepend(first)
		}
	}
}

// resumed flags m if it is the first to a released port.
func (c *Conn) resumed(m *Msg) {
	st := c.stops.of[m.DPort]
	if st == nil || st.stopped || m.Internal != 0 {
		return
	}
	m.priv.flags |= wire.FlagResume
	delete(c.stops.of, st.port)
	last := len(c.stops.list) - 1
	moved := c.stops.list[last]
	c.stops.list[st.nth], moved.nth = moved, st.nth
	c.stops.list[last] = nil
	c.stops.list = c.stops.list[:last]
}
