package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
)

// Encode returns the state that a TCP needs that takes this one's place in another process, in a
// version of internal/handover. The TCP is halted and Down. number names a message of the host
// for Adopt's find.
func (c *TCP) Encode(version uint16, number func(*Msg) uint32) ([]byte, error) {
	c.calls.called(callDrive)
	switch {
	case version < handover.Oldest || version > handover.Newest:
		return nil, fmt.Errorf("conn: hand over in version %d: there are %d to %d", version, handover.Oldest, handover.Newest)
	case !c.halted || c.State() != Down || c.closed:
		return nil, errNotDown
	}
	w := handover.NewWriter(version)
	w.Begin(handover.TagConn)
	w.Bool(c.met)
	w.Bool(c.chosen)
	w.I64(c.since)
	why := ""
	if c.why != nil {
		why = c.why.Error()
	}
	w.String(why[:min(len(why), mostWhy)])
	w.Bool(c.peer.known)
	w.Bool(c.peer.bySPort)
	w.Bool(c.peer.answers)
	w.U32(c.peer.gen)
	w.U8(uint8(c.n))
	w.U8(uint8(c.taken))
	w.Bool(c.gate.shut)
	w.U64(c.gate.below)
	w.I64(c.gate.until)
	encodeStats(w, &c.stats)
	for i := range c.lanes {
		c.lanes[i].encode(w, number)
	}
	c.seen.encode(w)
	w.End()
	return w.Bytes(), nil
}

func (l *tcpLane) encode(w *handover.Writer, number func(*Msg) uint32) {
	w.U64(l.out.nextTx)
	w.U64(l.out.lastAck)
	w.U64(l.in.last)
	w.Bool(l.again && !mutant.On(mutant.HandoverTCPAgain))
	w.I64(l.redial.ceiling)
	w.I64(l.redial.at)
	w.Int(l.pings.open)
	encodeList(w, &l.out.queue, number)
}

// Adopt has a new TCP go on from a state that Encode returned. It is halted then, until Resume.
// find returns the host's message of a number, or nil if there is none. After an error, that the
// state is none or does not fit together, the TCP is not to be used.
func (c *TCP) Adopt(state []byte, find func(number uint32) *Msg) error {
	c.calls.called(callDrive)
	c.halted = true
	r, err := handover.NewReader(state)
	if err != nil {
		return err
	}
	r.Begin(handover.TagConn)
	c.met, c.chosen, c.since = r.Bool(), r.Bool(), r.I64()
	if why := r.String(mostWhy); why != "" {
		c.why = errors.New(why)
	}
	c.peer = tcpPeer{known: r.Bool(), bySPort: r.Bool(), answers: r.Bool(), gen: r.U32()}
	c.n, c.taken = int(r.U8()), int(r.U8())
	c.gate = tcpGate{shut: r.Bool(), below: r.U64(), until: r.I64()}
	if c.n < 1 || c.n&(c.n-1) != 0 || c.taken < c.n || c.taken > wire.MaxPaths {
		r.Fail("%d lanes, of which %d are taken", c.n, c.taken)
		c.n, c.taken = 1, 1
	}
	adoptStats(r, &c.stats)
	m := msgReader{r: r, find: find, own: &c.own, cuts: &c.cuts, each: true}
	for i := range c.lanes {
		c.lanes[i].adopt(&m)
	}
	m.linkRuns()
	c.seen.adopt(r)
	r.End()
	return r.Close()
}

func (l *tcpLane) adopt(a *msgReader) {
	r, out := a.r, &l.out
	out.nextTx, out.lastAck, l.in.last = r.U64(), r.U64(), r.U64()
	l.again = r.Bool()
	l.redial = redial{min(r.I64(), l.c.cfg.MaxBackoff), r.I64()}
	l.pings.open = r.Int(maxOwing)
	if out.nextTx == 0 || out.lastAck >= out.nextTx || l.redial.ceiling < 0 {
		r.Fail("lane %d: the next sequence is %d, acked are %d, the back-off is %d ns", l.n, out.nextTx, out.lastAck, l.redial.ceiling)
	}
	a.next = out.nextTx
	a.list(&out.queue, true)
	for m := out.queue.head; m != nil; m = m.priv.next {
		_, own := m.Owner.(*ownMsg)
		switch {
		case m.Op != nil, m.Internal != 0, m.DestCookie != 0:
			r.Fail("a message of port %d has what RDS/TCP has not", m.SPort)
			return
		case own && m.SPort == wire.ProbePort:
			l.pings.last = m
		}
	}
}

// encode writes the sequences of all ports from which something came.
func (t *seqTable) encode(w *handover.Writer) {
	n := 0
	t.each(func(uint16, uint64) { n++ })
	if mutant.On(mutant.HandoverTCPSeen) {
		n, t = 0, &seqTable{}
	}
	w.Count(n)
	t.each(func(port uint16, seq uint64) {
		w.U16(port)
		w.U64(seq)
	})
}

func (t *seqTable) adopt(r *handover.Reader) {
	for range r.Count(allPorts, 2+8) {
		port, seq := r.U16(), r.U64()
		if at := t.at(port); *at != 0 || seq == 0 {
			r.Fail("port %d has sequence %d, and another one", port, seq)
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
