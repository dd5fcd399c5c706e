// Package crossing has the messages of a connection go over in a planned restart.
package crossing

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
)

// mostListed bounds a list of messages in a state that is read.
const mostListed = 1 << 24

// What a message's record says of it, besides Posted, and of its operation that it was posted, is done, is carried and was answered.
const (
	recOwn    = 1 << 0
	recAckNow = 1 << 4
	recCut    = 1 << 7 // a run of which a datagram was cut off, or such a datagram (recOwn)
)

// Messages has the messages of a connection go over.
type Messages struct {
	S      *handover.State
	Number func(*msg.Msg) uint32 // if they are written

	// If they are read:
	Find func(uint32) *msg.Msg
	Own  *msg.OwnMsgs
	Cuts *msg.Cutter
	Next uint64                 // sequence to be given
	Each bool                   // each datagram of a run has a sequence
	runs map[uint32]*msg.CutRun // by number
}

// List has a list of messages go over. numbered says that each has a sequence, in order.
func (a *Messages) List(l *msg.List, numbered bool) {
	s, m, last := a.S, l.Head, uint64(0)
	for range s.Count(l.N, mostListed, 1+8+2+4) {
		p := msg.Track{}
		var acks, posted, done, carried, answered, cut bool
		if !s.Reads() {
			p = m.Track
			posted, done = p.Op.Posted(), p.Op.Done()
			acks, carried, answered, cut = p.Own && m.AckNow, posted && m.Carried(), p.Atomic == msg.Answered, p.Cut != nil
		}
		rec := s.Flags8(&p.Own, &p.Posted, &posted, &done, &acks, &carried,
			&answered, &cut)
		flags := uint16(p.Flags)
		s.U64(&p.Seq)
		s.U16(&flags)
		m = a.one(m, rec)
		switch {
		case !s.Reads():
			m = m.Track.Next
			continue
		case s.Err() != nil:
			return
		case flags&^uint16(wire.FlagRetransmitted|wire.FlagResume|wire.FlagAckRequired) != 0:
			s.Fail("a message with flags %#x and %#x", rec, flags)
		case numbered && (p.Seq <= last || p.Seq >= a.Next || a.Each && uint64(m.Datagrams()) > a.Next-p.Seq), !numbered && p.Seq != 0:
			s.Fail("a message with sequence %d behind %d, the next one is %d", p.Seq, last, a.Next)
		case (done || carried) && !posted, posted && m.Op == nil, carried && m.Atomic() == nil,
			answered && (!carried || !p.Posted || p.Seq == 0):
			s.Fail("a message with operation flags %#x", rec)
		}
		if last = p.Seq; a.Each {
			last += uint64(m.Datagrams() - 1)
		}
		is := &m.Track
		is.State, is.Seq, is.Flags = msg.Queued, p.Seq, wire.Flags(flags)
		is.Posted = p.Posted
		if posted {
			is.Op = msg.OpPosted
		}
		if done {
			is.Op.Prove()
		}
		switch {
		case answered:
			is.Atomic = msg.Answered
		case carried:
			is.Atomic = msg.Carried
		}
		if m.HasRDMA() { // no work request is left
			is.Op.Complete()
		}
		l.Push(m)
	}
}

// one has m go over: as a number of the host, or with its content if it is the connection's own. It
// returns the message that was read, nil after an error.
func (a *Messages) one(m *msg.Msg, rec uint8) *msg.Msg {
	s := a.S
	switch {
	case rec&recCut != 0:
		return a.cutMsg(m, rec)
	case rec&recOwn == 0:
		n := a.numberOf(m)
		if s.U32(&n); s.Reads() {
			if m = a.hosts(n); m != nil {
				m.Track = msg.Track{}
			}
		}
		return m
	case s.Reads() && a.Own.N >= 2*msg.MaxOwing:
		s.Fail("more than %d messages of the connection's own", a.Own.N)
		return nil
	case s.Reads():
		m = &a.Own.Take().Msg
		m.AckNow = rec&recAckNow != 0
	}
	s.U16(&m.SPort)
	s.U16(&m.DPort)
	s.U32s(&m.SrcInc, &m.DstInc)
	s.U16((*uint16)(&m.Internal))
	s.U64(&m.Track.About)
	data, o := m.Data, m.Owner.(*msg.OwnMsg)
	if s.Blob(&data, len(o.Body)); s.Reads() {
		m.Data = o.Body[:copy(o.Body[:], data)]
	}
	return m
}

// numberOf is the number of a message that is written.
func (a *Messages) numberOf(m *msg.Msg) (n uint32) {
	if !a.S.Reads() {
		n = a.Number(m)
	}
	return n
}

// hosts finds a message of the host that was not found before.
func (a *Messages) hosts(n uint32) *msg.Msg {
	if a.S.Err() != nil {
		return nil
	}
	m := a.Find(n)
	if m == nil || m.Track.State != msg.Idle || m.Track.Cut != nil {
		a.S.Fail("message %d is not there, or twice", n)
		return nil
	}
	return m
}

// cutMsg has go over where the rest of a run begins, or what a datagram is of its run.
func (a *Messages) cutMsg(m *msg.Msg, rec uint8) *msg.Msg {
	s := a.S
	var n uint32
	var at, size int
	if !s.Reads() {
		n, at, size = a.Number(m.Track.Cut.Run), m.Run, len(m.Data)
		if p, ok := m.Owner.(*msg.RunPart); ok && m.IsPart() {
			at, size = p.Off, len(p.Data)
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
	run, all := x.Run, len(x.Data)
	if at > all || size > 0 && size > all-at-frames.Head || a.Cuts.Full() || x.Acked == 0 {
		s.Fail("a datagram of %d bytes at %d of run %d of %d bytes", size, at, n, all)
		return nil
	}
	x.Acked--
	p := a.Cuts.Take(x)
	p.Off = at
	p.Msg = msg.Msg{Owner: p, SPort: run.SPort, DPort: run.DPort, SrcInc: run.SrcInc, DstInc: run.DstInc,
		Addr: run.Addr + uint64(at+frames.Head), LKey: run.LKey, AckNow: rec&recAckNow != 0, At: run.At}
	if size > 0 {
		p.Data = x.Data[at+frames.Head:][:size:size]
	}
	p.Track.Cut, p.Track.Own = x, true
	return &p.Msg
}

// restOf is the rest of run n: so many datagrams, in the last bytes of it.
func (a *Messages) restOf(x *msg.CutRun, n uint32, datagrams, size int) *msg.Msg {
	run, all := x.Run, len(x.Data)
	if run.Track.State != msg.Idle || datagrams == 0 || datagrams > x.Datagrams || size > all {
		a.S.Fail("%d datagrams in %d bytes are left of run %d of %d in %d", datagrams, size, n, x.Datagrams, all)
		return nil
	}
	run.Run, run.Data = datagrams, x.Data[all-size:]
	return run
}

// runOf is run n of the host. All of it counts as acked until the rest is known, see linkRuns.
func (a *Messages) runOf(n uint32) *msg.CutRun {
	if x := a.runs[n]; x != nil {
		return x
	}
	m := a.hosts(n)
	if m == nil || m.Run == 0 {
		a.S.Fail("message %d is no run", n)
		return nil
	}
	m.Track = msg.Track{}
	x := a.Cuts.Begin(m)
	x.Acked = x.Datagrams
	m.Run, m.Data = 0, m.Data[len(m.Data):]
	if a.runs == nil {
		a.runs = map[uint32]*msg.CutRun{}
	}
	a.runs[n] = x
	return x
}

// LinkRuns counts what was acked of the runs.
func (a *Messages) LinkRuns() {
	for n, x := range a.runs { // each by itself
		p := &x.Run.Track
		if x.Acked -= x.Run.Run; x.Acked < 0 || x.Run.Run == 0 && x.First == nil {
			a.S.Fail("run %d has %d datagrams too many, or none", n, -x.Acked)
			return
		}
		p.State, p.Posted = msg.Queued, p.Posted || x.Acked > 0
		for part := x.First; part != nil; part = part.Next {
			p.Posted = p.Posted || part.Track.Posted
		}
	}
}
