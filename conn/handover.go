package conn

import (
	"errors"
	"maps"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/internal/crossing"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
)

var errNotDown = errors.New("conn: handed over before it is halted and Down")

// allPorts is how many ports there are.
const allPorts = 1 << 16

// Encode returns the state that a Conn needs that takes this one's place in another
// process, in a version of internal/handover. The Conn is halted and Down. number names a
// message of the host for Adopt's find.
func (c *Conn) Encode(version uint16, number func(*msg.Msg) uint32) ([]byte, error) {
	c.calls.Drive()
	if !c.halt.on || c.state != Down || c.closed {
		return nil, errNotDown
	}
	return handover.Encode(version, func(s *handover.State) { c.handOver(&crossing.Messages{S: s, Number: number}) })
}

// mostWhy bounds the text of an error that is handed over.
const mostWhy = 1 << 10

// kept are the lists that a Conn that is Down may have messages on, stopped ports aside.
func (c *Conn) kept() [4]*msg.List {
	return [4]*msg.List{&c.out.rtx, &c.out.notices, &c.out.control, &c.out.queue}
}

// Adopt has a new Conn go on from a state that Encode returned. It is halted then, until
// Resume. find returns the host's message of a number, or nil if there is none. After an
// error, that the state is none or does not fit together, the Conn is not to be used.
func (c *Conn) Adopt(state []byte, find func(number uint32) *msg.Msg) error {
	c.calls.Drive()
	c.halt.ops, c.halt.on = true, true
	return handover.Adopt(state, func(s *handover.State) {
		c.handOver(&crossing.Messages{S: s, Find: find, Own: &c.own, Cuts: &c.cuts})
	})
}

func (c *Conn) handOver(a *crossing.Messages) {
	s := a.S
	s.Begin(handover.TagConn)
	s.U64(&c.peer)
	s.U64(&c.in.last)
	s.U64(&c.out.nextTx)
	s.U64(&c.settling.acked)
	s.I64s(&c.settling.expires, &c.redial.Ceiling, &c.redial.At, &c.since)
	s.Int(&c.halt.again, againTries)
	s.Bool(&c.k.on)
	s.Bool(&c.cong.told)
	s.Error(&c.why, mostWhy)
	switch {
	case c.out.nextTx == 0, c.settling.acked >= c.out.nextTx:
		s.Fail("the next sequence is %d, acked are %d", c.out.nextTx, c.settling.acked)
	case c.peer == 0 && c.in.last != 0:
		s.Fail("received up to %d of a peer that was never met", c.in.last)
	case c.redial.Ceiling < 0 || c.redial.Ceiling > c.cfg.MaxBackoff:
		s.Fail("a back-off of %d ns", c.redial.Ceiling)
	}
	s.Counters(&c.stats)
	s.I64s(&c.rtt.Last, &c.rtt.Smoothed, &c.rtt.Least, &c.rtt.At)
	refusing := lists.Sorted(maps.Keys(c.in.refusing)) // so that the same state has the same bytes
	for i := range s.Count(len(refusing), allPorts, 2) {
		port := handover.Nth(s, refusing, i)
		s.U16(&port)
		c.in.refusing[port] = struct{}{}
	}
	c.handOverCong(s)
	a.Next = c.out.nextTx
	c.handOverStops(a)
	for _, l := range c.kept() {
		a.List(l, l == &c.out.rtx)
	}
	if s.Reads() {
		a.LinkRuns()
		c.keepQueued()
		c.stops.due, c.out.untilAsk = true, askEvery
	}
	s.End()
}

// handOverCong has the peer's congestion map go over.
func (c *Conn) handOverCong(s *handover.State) {
	var b []byte
	if !s.Reads() && !c.cong.remote.Empty() {
		b = make([]byte, cong.Len)
		c.cong.remote.Put(b)
	}
	if s.Blob(&b, cong.Len); !s.Reads() {
		return
	}
	if len(b) == cong.Len {
		_ = c.cong.remote.Load(b, nil)
	} else if len(b) != 0 {
		s.Fail("a congestion map of %d bytes", len(b))
	}
}

// keepQueued has stopped ports keep what a former version left in the queue for them, behind
// the rest.
func (c *Conn) keepQueued() {
	for m := range c.out.queue.All() {
		if st := c.stops.stopped(m.DPort); st != nil && m.Internal == 0 {
			c.out.queue.Remove(m)
			m.Track.Posted = true
			st.behind.Push(m)
		}
	}
}

// handOverStops has the ports that have refused go over: those that are stopped, for all are that keep
// anything, and those that were released.
func (c *Conn) handOverStops(a *crossing.Messages) {
	s, k := a.S, &c.stops
	released := -1
	for i := range s.Count(len(k.list)+k.resume.Count(), allPorts, 2+1+4+4) {
		st := &portStop{at: &msg.Port{}}
		switch {
		case s.Reads():
		case i < len(k.list):
			st = k.list[i]
		default:
			for released++; !k.resume.Test(uint16(released)); released++ {
			}
			st.at.Num = uint16(released)
		}
		port, stopped := st.at.Num, st.stopped
		s.U16(&port)
		if s.Bool(&stopped); s.Reads() {
			st = c.adoptStop(s, port, stopped)
		}
		for _, l := range st.lists() {
			if a.List(l, false); !s.Reads() {
				continue
			}
			for at := l.Head; at != nil; at = at.Track.Next {
				at.Track.Posted = true // or a former version kept it: then it goes on like the others
			}
			if !stopped && l.N > 0 {
				s.Fail("port %d was released and keeps %d messages", port, l.N)
			}
		}
	}
}

// adoptStop returns a port that has refused, of a state that is read.
func (c *Conn) adoptStop(s *handover.State, port uint16, stopped bool) *portStop {
	k := &c.stops
	if k.of(port) != nil || k.resume.Test(port) {
		s.Fail("port %d has refused twice", port)
	}
	if !stopped {
		k.resume.Set(port)
		return &portStop{}
	}
	st := k.add(port)
	st.stopped, st.keeps = true, true
	return st
}
