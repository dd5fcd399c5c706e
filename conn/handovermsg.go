package conn

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
)

// What a message's record says of it, besides posted, opPosted, opProven, carried and answered.
const (
	recOwn    = 1 << 0
	recAckNow = 1 << 4
	recCut    = 1 << 7 // a run of which a datagram was cut off, or such a datagram (recOwn)
)

// crossing has the messages of a connection go over.
type crossing struct {
	s      *handover.State
	number func(*Msg) uint32 // if they are written

	// If they are read:
	find  func(uint32) *Msg
	own   *ownMsgs
	cuts  *cutter
	next  uint64               // sequence to be given
	stops map[uint16]*portStop // nil: none
	each  bool                 // each datagram of a run has a sequence
	runs  map[uint32]*cutRun   // by number
}

// list has a list of messages go over. numbered says that each has a sequence, in order.
func (a *crossing) list(l *msgList, numbered bool) {
	s, m, last := a.s, l.head, uint64(0)
	for range s.Count(l.n, mostListed, 1+8+2+4) {
		p := msgPriv{}
		var acks, carried, cut bool
		if !s.Reads() {
			p = m.priv
			acks, carried, cut = p.own && m.AckNow, p.opPosted && p.carried, p.cut != nil
		}
		rec := s.Flags8(&p.own, &p.posted, handover.Unless(s, mutant.On(mutant.HandoverPosted), &p.opPosted), &p.opProven, &acks, &carried,
			handover.Unless(s, mutant.On(mutant.HandoverAnswered), &p.answered), &cut)
		flags := uint16(p.flags)
		s.U64(&p.seq)
		s.U16(&flags)
		m = a.msg(m, rec)
		switch {
		case !s.Reads():
			m = m.priv.next
			continue
		case s.Err() != nil:
			return
		case flags&^uint16(wire.FlagRetransmitted|wire.FlagResume|wire.FlagAckRequired) != 0:
			s.Fail("a message with flags %#x and %#x", rec, flags)
		case numbered && (p.seq <= last || p.seq >= a.next || a.each && uint64(m.datagrams()) > a.next-p.seq), !numbered && p.seq != 0:
			s.Fail("a message with sequence %d behind %d, the next one is %d", p.seq, last, a.next)
		case (p.opProven || carried) && !p.opPosted, p.opPosted && m.Op == nil, carried && m.atomic() == nil,
			p.answered && (!carried || !p.posted || p.seq == 0):
			s.Fail("a message with operation flags %#x", rec)
		}
		if last = p.seq; a.each {
			last += uint64(m.datagrams() - 1)
		}
		is := &m.priv
		is.state, is.seq, is.flags = msgQueued, p.seq, wire.Flags(flags)
		is.posted, is.opPosted, is.opProven, is.carried, is.answered = p.posted, p.opPosted, p.opProven, carried, p.answered
		is.opLocal = p.opPosted && m.hasRDMA() // no work request is left
		if st := a.stops[m.DPort]; numbered && st != nil && st.stopped && m.Internal == 0 {
			is.stop = st
			st.inflight++
		}
		l.push(m)
	}
}

// msg has m go over: as a number of the host, or with its content if it is the connection's own. It
// returns the message that was read, nil after an error.
func (a *crossing) msg(m *Msg, rec uint8) *Msg {
	s := a.s
	switch {
	case rec&recCut != 0:
		return a.cutMsg(m, rec)
	case rec&recOwn == 0:
		n := a.numberOf(m)
		if s.U32(&n); s.Reads() {
			if m = a.hosts(n); m != nil {
				m.priv = msgPriv{}
			}
		}
		return m
	case s.Reads() && a.own.n >= 2*maxOwing:
		s.Fail("more than %d messages of the connection's own", a.own.n)
		return nil
	case s.Reads():
		m = &a.own.take().Msg
		m.AckNow = rec&recAckNow != 0
	}
	s.U16(&m.SPort)
	s.U16(&m.DPort)
	s.U32s(&m.SrcInc, &m.DstInc)
	s.U16((*uint16)(&m.Internal))
	s.U64(&m.priv.about)
	data, o := m.Data, m.Owner.(*ownMsg)
	if s.Blob(&data, len(o.body)); s.Reads() {
		m.Data = o.body[:copy(o.body[:], data)]
	}
	return m
}

// numberOf is the number of a message that is written.
func (a *crossing) numberOf(m *Msg) (n uint32) {
	if !a.s.Reads() {
		n = a.number(m)
	}
	return n
}

// hosts finds a message of the host that was not found before.
func (a *crossing) hosts(n uint32) *Msg {
	if a.s.Err() != nil {
		return nil
	}
	m := a.find(n)
	if m == nil || m.priv.state != msgIdle || m.priv.cut != nil {
		a.s.Fail("message %d is not there, or twice", n)
		return nil
	}
	return m
}

// cutMsg has go over where the rest of a run begins, or what a datagram is of its run.
func (a *crossing) cutMsg(m *Msg, rec uint8) *Msg {
	s := a.s
	var n uint32
	var at, size int
	if !s.Reads() {
		n, at, size = a.number(m.priv.cut.run), m.Run, len(m.Data)
		if p, ok := m.Owner.(*runPart); ok && m.isPart() {
			at, size = p.off, len(p.Data)
		}
	}
	s.U32(&n)
	s.Int(&at, abi.MaxMessage)
	s.Int(&size, abi.MaxMessage)
	if !s.Reads() || s.Err() != nil {
		return m
	}
	x := a.runOf(n)
	if x == nil {
		return nil
	}
	if rec&recOwn == 0 {
		return a.restOf(x, n, at, size)
	}
	run, all := x.run, len(x.data)
	if at > all || size > 0 && size > all-at-frames.Head || a.cuts.full() || x.acked == 0 {
		s.Fail("a datagram of %d bytes at %d of run %d of %d bytes", size, at, n, all)
		return nil
	}
	x.acked--
	p := a.cuts.take(x)
	p.off = at
	p.Msg = Msg{Owner: p, SPort: run.SPort, DPort: run.DPort, SrcInc: run.SrcInc, DstInc: run.DstInc,
		Addr: run.Addr + uint64(at+frames.Head), LKey: run.LKey, AckNow: rec&recAckNow != 0, At: run.At}
	if size > 0 {
		p.Data = x.data[at+frames.Head:][:size:size]
	}
	p.priv.cut, p.priv.own = x, true
	return &p.Msg
}

// restOf is the rest of run n: so many datagrams, in the last bytes of it.
func (a *crossing) restOf(x *cutRun, n uint32, datagrams, size int) *Msg {
	run, all := x.run, len(x.data)
	if run.priv.state != msgIdle || datagrams == 0 || datagrams > x.datagrams || size > all {
		a.s.Fail("%d datagrams in %d bytes are left of run %d of %d in %d", datagrams, size, n, x.datagrams, all)
		return nil
	}
	run.Run, run.Data = datagrams, x.data[all-size:]
	return run
}

// runOf is run n of the host. All of it counts as acked until the rest is known, see linkRuns.
func (a *crossing) runOf(n uint32) *cutRun {
	if x := a.runs[n]; x != nil {
		return x
	}
	m := a.hosts(n)
	if m == nil || m.Run == 0 {
		a.s.Fail("message %d is no run", n)
		return nil
	}
	m.priv = msgPriv{}
	x := a.cuts.begin(m)
	x.acked = x.datagrams
	m.Run, m.Data = 0, m.Data[len(m.Data):]
	if a.runs == nil {
		a.runs = map[uint32]*cutRun{}
	}
	a.runs[n] = x
	return x
}

// linkRuns counts what was acked of the runs.
func (a *crossing) linkRuns() {
	for n, x := range a.runs { // each by itself
		p := &x.run.priv
		if x.acked -= x.run.Run; x.acked < 0 || x.run.Run == 0 && x.first == nil {
			a.s.Fail("run %d has %d datagrams too many, or none", n, -x.acked)
			return
		}
		p.state, p.posted = msgQueued, p.posted || x.acked > 0
		for part := x.first; part != nil; part = part.next {
			p.posted = p.posted || part.priv.posted
		}
	}
}
