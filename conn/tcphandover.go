package conn

import (
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
)

// Encode returns the state that a TCP needs that takes this one's place in another process, in a
// version of internal/handover. The TCP is halted and Down. number names a message of the host
// for Adopt's find.
func (c *TCP) Encode(version uint16, number func(*Msg) uint32) ([]byte, error) {
	c.calls.called(callDrive)
	if !c.halted || c.State() != Down || c.closed {
		return nil, errNotDown
	}
	return handover.Encode(version, func(s *handover.State) { c.handOver(&crossing{s: s, number: number}) })
}

// Adopt has a new TCP go on from a state that Encode returned. It is halted then, until Resume.
// find returns the host's message of a number, or nil if there is none. After an error, that the
// state is none or does not fit together, the TCP is not to be used.
func (c *TCP) Adopt(state []byte, find func(number uint32) *Msg) error {
	c.calls.called(callDrive)
	c.halted = true
	return handover.Adopt(state, func(s *handover.State) {
		c.handOver(&crossing{s: s, find: find, own: &c.own, cuts: &c.cuts, each: true})
	})
}

func (c *TCP) handOver(a *crossing) {
	s := a.s
	s.Begin(handover.TagConn)
	s.Bool(&c.met)
	s.Bool(&c.chosen)
	s.I64(&c.since)
	s.Error(&c.why, mostWhy)
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
		a.linkRuns()
	}
	c.seen.handOver(s)
	s.End()
}

func (l *tcpLane) handOver(a *crossing) {
	s, out := a.s, &l.out
	s.U64s(&out.nextTx, &out.lastAck, &l.in.last)
	s.Bool(handover.Unless(s, mutant.On(mutant.HandoverTCPAgain), &l.again))
	s.I64s(&l.redial.ceiling, &l.redial.at)
	s.Int(&l.pings.open, maxOwing)
	if s.Reads() {
		l.redial.ceiling = min(l.redial.ceiling, l.c.cfg.MaxBackoff)
	}
	if out.nextTx == 0 || out.lastAck >= out.nextTx || l.redial.ceiling < 0 {
		s.Fail("lane %d: the next sequence is %d, acked are %d, the back-off is %d ns", l.n, out.nextTx, out.lastAck, l.redial.ceiling)
	}
	a.next = out.nextTx
	if a.list(&out.queue, true); !s.Reads() {
		return
	}
	for m := out.queue.head; m != nil; m = m.priv.next {
		_, own := m.Owner.(*ownMsg)
		switch {
		case m.Op != nil, m.Internal != 0, m.DestCookie != 0:
			s.Fail("a message of port %d has what RDS/TCP has not", m.SPort)
			return
		case own && m.SPort == wire.ProbePort:
			l.pings.last = m
		}
	}
}

// handOver has the sequences of all ports from which something came go over.
func (t *seqTable) handOver(s *handover.State) {
	var ports []uint16
	t.each(func(port uint16, _ uint64) { ports = append(ports, port) })
	if mutant.On(mutant.HandoverTCPSeen) {
		ports = nil
	}
	for i := range s.Count(len(ports), allPorts, 2+8) {
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
