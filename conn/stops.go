package conn

import (
	"github.com/rdsd/rdsd/conn/cong"
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
	behind   msgList // sequences after those, not sent since
}

func (st *portStop) lists() [2]*msgList { return [2]*msgList{&st.refused, &st.behind} }

// portStops are the ports of the peer that have refused a message and were not
// released since.
type portStops struct {
	list []*portStop
	of   map[uint16]*portStop
	due  bool // a port may have become free to be released
}

// any reports whether messages wait in a stopped port.
func (s *portStops) any() bool {
	for _, st := range s.list {
		if st.refused.n+st.behind.n > 0 {
			return true
		}
	}
	return false
}

// refuse keeps m, which the peer has received and refused, and stops its port for
// the messages of o.
func (s *portStops) refuse(m *Msg, o *outbox) {
	s.left(m)
	st := s.of[m.DPort]
	if st == nil {
		st = &portStop{port: m.DPort, nth: len(s.list)}
		s.of[m.DPort] = st
		s.list = append(s.list, st)
	}
	if !st.stopped {
		st.stopped = true
		for _, l := range [...]*msgList{&o.unacked, &o.rtx} {
			for f := l.head; f != nil; f = f.priv.next {
				if f.DPort == m.DPort && f.Internal == 0 && f.priv.stop == nil {
					f.priv.stop = st
					st.inflight++
				}
			}
		}
	}
	p := &m.priv
	p.state, p.seq, p.flags = msgQueued, 0, 0
	// Received means that the operation ahead of it is done: from here on it
	// is a message like any other.
	p.opProven = p.opPosted
	if mutant.On(mutant.RefusedRunsAgain) {
		p.opPosted, p.opLocal = false, false
	}
	st.refused.push(m)
	s.due = true
}

// left notes that m is no longer in flight to a stopped port, if it was.
func (s *portStops) left(m *Msg) {
	if p := &m.priv; p.stop != nil {
		p.stop.inflight--
		p.stop = nil
		s.due = true
	}
}

// holdBack moves m, at the head of queue, behind the refused messages if
// its port is stopped.
func (s *portStops) holdBack(m *Msg, queue *msgList) bool {
	st := s.of[m.DPort]
	if st == nil || !st.stopped || m.Internal != 0 {
		return false
	}
	queue.remove(m)
	st.behind.push(m)
	return true
}

// release lets stopped ports go on that may: their messages go to the front of queue.
// remote is the peer's congestion map.
func (s *portStops) release(queue *msgList, remote *cong.Map) {
	s.due = false
	for i := len(s.list) - 1; i >= 0; i-- {
		st := s.list[i]
		if st.stopped && (st.inflight == 0 || mutant.On(mutant.ReleasedEarly)) && !remote.Test(st.port) {
			st.stopped = false
			last, first := &st.behind, &st.refused
			if mutant.On(mutant.HeldOvertakes) {
				last, first = first, last
			}
			queue.prepend(last)
			queue.prepend(first)
		}
	}
}

// resumed flags m if it is the first to a released port, which it forgets.
func (s *portStops) resumed(m *Msg) {
	st := s.of[m.DPort]
	if st == nil || st.stopped || m.Internal != 0 {
		return
	}
	m.priv.flags |= wire.FlagResume
	delete(s.of, st.port)
	last := len(s.list) - 1
	moved := s.list[last]
	s.list[st.nth], moved.nth = moved, st.nth
	s.list[last] = nil
	s.list = s.list[:last]
}
