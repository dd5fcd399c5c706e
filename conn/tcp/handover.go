package tcp

import (
	"errors"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/internal/crossing"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
)

var errNotStill = errors.New("conn: handed over before it is halted and Down")

// mostText bounds the text of an error that is handed over.
const mostText = 1 << 10

// Encode returns the state that a Conn needs that takes this one's place in another process, in a
// version of internal/handover. The Conn is halted and Down. number names a message of the host
// for Adopt's find.
func (c *Conn) Encode(version uint16, number func(*msg.Msg) uint32) ([]byte, error) {
	c.calls.Drive()
	if !c.halted || c.State() != conn.Down || c.closed {
		return nil, errNotStill
	}
	return handover.Encode(version, func(s *handover.State) { c.handOver(&crossing.Messages{S: s, Number: number}) })
}

// Adopt has a new Conn go on from a state that Encode returned. It is halted then, until Resume.
// find returns the host's message of a number, or nil if there is none. After an error, that the
// state is none or does not fit together, the Conn is not to be used.
func (c *Conn) Adopt(state []byte, find func(number uint32) *msg.Msg) error {
	c.calls.Drive()
	c.halted = true
	return handover.Adopt(state, func(s *handover.State) {
		c.handOver(&crossing.Messages{S: s, Find: find, Own: &c.own, Cuts: &c.cuts, Each: true})
	})
}

func (c *Conn) handOver(a *crossing.Messages) {
	s := a.S
	s.Begin(handover.TagConn)
	s.Bool(&c.met)
	s.Bool(&c.chosen)
	s.I64(&c.since)
	s.Error(&c.why, mostText)
	s.Bool(&c.peer.known)
	s.Bool(&c.peer.bySPort)
	s.Bool(&c.peer.answers)
	s.U32(&c.peer.gen)
	handover.As8(s, &c.n)
	handover.As8(s, &c.taken)
	s.Bool(&c.gate.shut)
	s.U64(&c.gate.below)
	s.I64(&c.gate.until)
	if s.Reads() && (c.n < 1 || c.n&(c.n-1) != 0 || c.taken < c.n || c.taken > wire.MaxPaths) {
		s.Fail("%d lanes, of which %d are taken", c.n, c.taken)
		c.n, c.taken = 1, 1
	}
	s.Counters(&c.stats)
	for i := range c.lanes {
		c.lanes[i].handOver(a)
	}
	if s.Reads() {
		a.LinkRuns()
	}
	c.seen.handOver(s)
	s.End()
}

func (l *lane) handOver(a *crossing.Messages) {
	s, out := a.S, &l.out
	s.U64s(&out.nextTx, &out.lastAck, &l.in.last)
	s.Bool(&l.again)
	s.I64s(&l.redial.Ceiling, &l.redial.At)
	s.Int(&l.open, msg.MaxOwing)
	if s.Reads() {
		l.redial.Ceiling = min(l.redial.Ceiling, l.c.cfg.MaxBackoff)
	}
	if out.nextTx == 0 || out.lastAck >= out.nextTx || l.redial.Ceiling < 0 {
		s.Fail("lane %d: the next sequence is %d, acked are %d, the back-off is %d ns", l.n, out.nextTx, out.lastAck, l.redial.Ceiling)
	}
	a.Next = out.nextTx
	if a.List(&out.queue, true); !s.Reads() {
		return
	}
	for m := out.queue.Head; m != nil; m = m.Track.Next {
		if m.Op != nil || m.Internal != 0 || m.DestCookie != 0 {
			s.Fail("a message of port %d has what RDS/TCP has not", m.SPort)
			return
		}
	}
	l.endHandshake() // a daemon up to 0.2.0 kept it
}

// handOver has the sequences of all ports from which something came go over.
func (t *seqTable) handOver(s *handover.State) {
	var ports []uint16
	t.each(func(port uint16, _ uint64) { ports = append(ports, port) })
	for i := range s.Count(len(ports), 1<<16, 2+8) {
		port := handover.Nth(s, ports, i)
		s.U16(&port)
		at := t.at(port)
		seq := *at
		if s.U64(&seq); !s.Reads() {
			continue
		}
		if *at != 0 || seq == 0 {
			s.Fail("port %d has sequence %d, and another one", port, seq)
		} else {
			*at = seq
		}
	}
}

// each calls f for the ports with a sequence, in order.
func (t *seqTable) each(f func(port uint16, seq uint64)) {
	for i, p := range t.pages {
		if p == nil {
			continue
		}
		for k, seq := range p {
			if seq != 0 {
				f(uint16(i<<8|k), seq)
			}
		}
	}
}
