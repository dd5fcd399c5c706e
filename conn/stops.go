package conn

import (
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// portStop is a port of the peer that refused a message. While stopped it keeps the
// messages that were refused, and what was not posted is the host's again. It is released
// when the peer's congestion map shows the port free and nothing is in flight to it any
// more: what was, was refused as well and must go first. Then it lets go of what it keeps,
// beside what the host sends to other ports, see letGo, and is forgotten.
type portStop struct {
	at      *msg.Port
	nth     int // in portStops.list
	stopped bool
	keeps   bool     // stopped, or not all that was refused was let go: Conn.Stopped
	refused msg.List // while stopped, by sequence
	behind  msg.List // refused earlier, behind those
	looked  bool     // in portStops.looks
	lets    bool     // in portStops.letting
}

func (st *portStop) lists() [2]*msg.List { return [2]*msg.List{&st.refused, &st.behind} }

// portStops are the ports of the peer that have refused a message and were not
// released since.
type portStops struct {
	list   []*portStop
	ports  msg.Ports // of what is queued, in flight and refused
	resume cong.Map  // released ports: the next message to each is to have RESUME
	due    bool      // any port may have become free to be released

	// There may be as many ports as a client has destinations, and a message is refused, or let
	// go of, more often than the map changes. So none of both looks at them all.
	looks    []*portStop // that may have become free to be released
	letting  []*portStop // released, with something to let go of; some may be stopped again
	turn     int         // of letting, in letGo
	released uint64      // counts ports that have let go of all that they kept
	walked   uint64      // counts looks at a port or a message
}

// look has st released if it may be.
func (s *portStops) look(st *portStop) {
	if !st.looked {
		st.looked = true
		s.looks = append(s.looks, st)
	}
}

// pending reports whether ports may be released or let go of something.
func (s *portStops) pending() bool { return s.due || len(s.looks)+len(s.letting) > 0 }

// keepsWindow is how much of what was refused waits in the queue at a time, as Conn.Queued
// counts it: the host has to have room for other ports.
const keepsWindow = 32 << 10

// any reports whether messages are kept for a port.
func (s *portStops) any() bool { return s.ports.Wanted > 0 }

// keeping are the ports for which messages are kept, with others unless there are none.
func (s *portStops) keeping() []*portStop {
	if s.ports.Refused.Datagrams == 0 {
		return nil
	}
	return s.list
}

// of is what is known of a port that has refused, nil: nothing.
func (s *portStops) of(port uint16) *portStop {
	if p := s.ports.At(port); p != nil {
		st, _ := p.Stop.(*portStop)
		return st
	}
	return nil
}

func (s *portStops) add(port uint16) *portStop {
	st := &portStop{at: s.ports.Get(port), nth: len(s.list)}
	st.at.Stop = st
	s.ports.Keeps(&st.refused)
	s.ports.Keeps(&st.behind)
	s.list = append(s.list, st)
	return st
}

// refuse keeps m, which the peer has received and refused, and stops its port.
func (c *Conn) refuse(m *msg.Msg) {
	s := &c.stops
	st := s.of(m.DPort)
	if st == nil {
		st = s.add(m.DPort)
	}
	if !st.stopped {
		c.stop(st)
	}
	p := &m.Track
	p.State, p.Seq, p.Flags = msg.Queued, 0, 0
	// Received means that the operation ahead of it is done: from here on it
	// is a message like any other.
	p.Op.Prove()
	st.refused.Push(m)
	s.look(st)
}

// stop stops st. What waits in the queue for its port and was refused before is kept, behind
// what is in flight. All else there is the host's again, the last one first.
func (c *Conn) stop(st *portStop) {
	st.stopped, st.keeps = true, true
	c.stops.resume.Clear(st.at.Num)
	for m := st.at.Waiting(); m != nil; {
		c.stops.walked++
		prev := m.SamePort()
		c.out.queue.Remove(m)
		if m.Track.Posted || m.Track.Own {
			st.behind.Insert(m, st.behind.Head)
		} else {
			c.stats.SendQueued -= uint64(m.Datagrams())
			c.end(m, msg.Returned)
		}
		m = prev
	}
}

// left notes that m, if it was in flight to a stopped port, is no more.
func (s *portStops) left(m *msg.Msg) {
	if len(s.list) == 0 || m.Internal != 0 {
		return
	}
	if st := s.of(m.DPort); st != nil && st.stopped && st.at.InFlight == 0 {
		s.look(st)
	}
}

// Stopped reports whether the peer refuses messages to port, or has to have others first that
// it has refused. What is sent to the port meanwhile ends with Returned.
func (c *Conn) Stopped(port uint16) bool { return c.stops.stopped(port) != nil }

// Released counts how often a port that was Stopped is not any more.
func (c *Conn) Released() uint64 { return c.stops.released }

func (s *portStops) stopped(port uint16) *portStop {
	if len(s.list) == 0 {
		return nil
	}
	if st := s.of(port); st != nil && st.keeps {
		return st
	}
	return nil
}

// turnAway moves m, at the head of the queue, out of it if its port is stopped: the host has
// it again. A message of the Conn's own is kept.
func (c *Conn) turnAway(m *msg.Msg) bool {
	st := c.stops.stopped(m.DPort)
	if st == nil || m.Internal != 0 || m.Track.Posted || m.Track.Own && !st.stopped {
		return false
	}
	c.out.queue.Remove(m)
	if m.Track.Own {
		st.behind.Push(m)
		return true
	}
	c.stats.SendQueued -= uint64(m.Datagrams())
	c.end(m, msg.Returned)
	return true
}

// release lets stopped ports go on that may, and lets go of what they keep. remote is the
// peer's congestion map.
func (s *portStops) release(queue *msg.List, remote *cong.Map) {
	looks := s.looks
	if s.due {
		looks = s.list
	}
	for _, st := range looks {
		s.walked++
		if st.stopped && st.at.InFlight == 0 && !remote.Test(st.at.Num) {
			st.stopped = false
			s.resume.Set(st.at.Num)
			st.behind.Prepend(&st.refused)
			if !st.lets {
				st.lets = true
				s.letting = append(s.letting, st)
			}
		}
	}
	for i, st := range s.looks {
		st.looked, s.looks[i] = false, nil
	}
	s.due, s.looks = false, s.looks[:0]
	s.letGo(queue)
	if len(s.list) == 0 { // there may have been many
		s.list, s.looks, s.letting = nil, nil, nil
	}
}

// letGo moves what released ports keep to the end of the queue, a message of each port in
// turn, until enough of it waits there.
func (s *portStops) letGo(queue *msg.List) {
	for len(s.letting) > 0 && queue.Again < keepsWindow {
		s.walked++
		i := s.turn % len(s.letting)
		st := s.letting[i]
		if m := st.behind.Head; m != nil && !st.stopped {
			st.behind.Remove(m)
			queue.Push(m)
		}
		if !st.stopped && st.behind.N > 0 {
			s.turn = i + 1
			continue
		}
		last := len(s.letting) - 1
		s.letting[i], s.letting[last] = s.letting[last], nil
		s.letting, st.lets, s.turn = s.letting[:last], false, i
		if !st.stopped {
			st.keeps = false
			s.released++
			s.forget(st)
		}
	}
}

// stopAgain stops the released ports that have not let go of all, because the connection has
// broken off. They let go of the rest on the next one.
func (c *Conn) stopAgain() {
	s := &c.stops
	for i, st := range s.letting {
		if !st.stopped {
			c.stop(st)
		}
		st.lets, s.letting[i] = false, nil
	}
	s.due, s.letting = true, s.letting[:0]
}

// LetsGo reports whether the next Flush lets go of messages that were refused.
func (c *Conn) LetsGo() bool {
	return c.Ready() && c.stops.pending() && c.out.queue.Again < keepsWindow
}

// resumed flags m if it is the first to a released port.
func (s *portStops) resumed(m *msg.Msg) {
	if m.Internal == 0 && s.resume.Clear(m.DPort) {
		m.Track.Flags |= wire.FlagResume
	}
}

// freed notes that port is no longer congested.
func (s *portStops) freed(port uint16) {
	if st := s.of(port); st != nil {
		s.look(st)
	}
}

// forget forgets st, which is neither stopped nor keeps anything.
func (s *portStops) forget(st *portStop) {
	st.at.Stop = nil
	s.ports.Drop(st.at)
	last := len(s.list) - 1
	moved := s.list[last]
	s.list[st.nth], moved.nth = moved, st.nth
	s.list[last] = nil
	s.list = s.list[:last]
}
