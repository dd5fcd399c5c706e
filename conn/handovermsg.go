package conn

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
)

// What a message's record says of it.
const (
	recOwn = 1 << iota
	recPosted
	recOpPosted
	recOpProven
	recAckNow
	recCarried
	recAnswered
	recCut // a run of which a datagram was cut off, or such a datagram (recOwn)
)

func encodeList(w *handover.Writer, l *msgList, number func(*Msg) uint32) {
	w.Count(l.n)
	for m := l.head; m != nil; m = m.priv.next {
		p := &m.priv
		rec := uint8(0)
		for _, f := range []struct {
			is  bool
			bit uint8
		}{{p.own, recOwn}, {p.posted, recPosted}, {p.opPosted, recOpPosted}, {p.opProven, recOpProven}, {p.own && m.AckNow, recAckNow},
			{p.opPosted && p.carried, recCarried}, {p.answered, recAnswered}, {p.cut != nil, recCut}} {
			if f.is && (f.bit != recOpPosted || !mutant.On(mutant.HandoverPosted)) && (f.bit != recAnswered || !mutant.On(mutant.HandoverAnswered)) {
				rec |= f.bit
			}
		}
		w.U8(rec)
		w.U64(p.seq)
		w.U16(uint16(p.flags))
		switch {
		case p.cut != nil:
			encodeCut(w, m, number)
			continue
		case !p.own:
			w.U32(number(m))
			continue
		}
		w.U16(m.SPort)
		w.U16(m.DPort)
		w.U32(m.SrcInc)
		w.U32(m.DstInc)
		w.U16(uint16(m.Internal))
		w.U64(p.about)
		w.Blob(m.Data)
	}
}

// encodeCut writes where the rest of a run begins, or what a datagram is of its run.
func encodeCut(w *handover.Writer, m *Msg, number func(*Msg) uint32) {
	x := m.priv.cut
	w.U32(number(x.run))
	if p, ok := m.Owner.(*runPart); ok && m.isPart() {
		w.Int(p.off)
		w.Int(len(p.Data))
		return
	}
	w.Int(m.Run)
	w.Int(len(m.Data))
}

// msgReader reads the messages of a connection.
type msgReader struct {
	r     *handover.Reader
	find  func(uint32) *Msg
	own   *ownMsgs
	cuts  *cutter
	next  uint64               // sequence to be given
	stops map[uint16]*portStop // nil: none
	each  bool                 // each datagram of a run has a sequence

	runs map[uint32]*cutRun // by number
}

// list reads a list of messages. numbered says that each has a sequence, in order.
func (a *msgReader) list(l *msgList, numbered bool) {
	r, last := a.r, uint64(0)
	for range r.Count(mostListed, 1+8+2+4) {
		rec, seq, flags := r.U8(), r.U64(), r.U16()
		m := a.msg(rec)
		if r.Err() != nil {
			return
		}
		switch {
		case flags&^uint16(wire.FlagRetransmitted|wire.FlagResume|wire.FlagAckRequired) != 0:
			r.Fail("a message with flags %#x and %#x", rec, flags)
		case numbered && (seq <= last || seq >= a.next || a.each && uint64(m.datagrams()) > a.next-seq), !numbered && seq != 0:
			r.Fail("a message with sequence %d behind %d, the next one is %d", seq, last, a.next)
		case rec&(recOpProven|recCarried) != 0 && rec&recOpPosted == 0, rec&recOpPosted != 0 && m.Op == nil,
			rec&recCarried != 0 && m.atomic() == nil, rec&recAnswered != 0 && (rec&recCarried == 0 || rec&recPosted == 0 || seq == 0):
			r.Fail("a message with operation flags %#x", rec)
		}
		if last = seq; a.each {
			last += uint64(m.datagrams() - 1)
		}
		p := &m.priv
		p.state, p.seq, p.flags = msgQueued, seq, wire.Flags(flags)
		p.posted, p.opPosted, p.opProven = rec&recPosted != 0, rec&recOpPosted != 0, rec&recOpProven != 0
		p.carried, p.answered = rec&recCarried != 0, rec&recAnswered != 0
		p.opLocal = p.opPosted && m.hasRDMA() // no work request is left
		if st := a.stops[m.DPort]; numbered && st != nil && st.stopped && m.Internal == 0 {
			p.stop = st
			st.inflight++
		}
		l.push(m)
	}
}

// msg finds a message of the host, or makes one of the connection's own.
func (a *msgReader) msg(rec uint8) *Msg {
	r := a.r
	switch {
	case rec&recCut != 0:
		return a.cutMsg(rec)
	case rec&recOwn == 0:
		m := a.hosts(r.U32())
		if m != nil {
			m.priv = msgPriv{}
		}
		return m
	case a.own.n >= 2*maxOwing:
		r.Fail("more than %d messages of the connection's own", a.own.n)
		return nil
	}
	o := a.own.take()
	o.SPort, o.DPort, o.SrcInc, o.DstInc = r.U16(), r.U16(), r.U32(), r.U32()
	o.Internal, o.priv.about = wire.InternalType(r.U16()), r.U64()
	o.AckNow = rec&recAckNow != 0
	o.Data = o.body[:copy(o.body[:], r.Blob(len(o.body)))]
	return &o.Msg
}

// hosts finds a message of the host that was not found before.
func (a *msgReader) hosts(n uint32) *Msg {
	if a.r.Err() != nil {
		return nil
	}
	m := a.find(n)
	if m == nil || m.priv.state != msgIdle || m.priv.cut != nil {
		a.r.Fail("message %d is not there, or twice", n)
		return nil
	}
	return m
}

// cutMsg finds the rest of a run of the host, or makes a datagram of one.
func (a *msgReader) cutMsg(rec uint8) *Msg {
	r := a.r
	n, x := r.U32(), (*cutRun)(nil)
	at, size := r.Int(abi.MaxMessage), r.Int(abi.MaxMessage)
	if r.Err() == nil {
		x = a.runOf(n)
	}
	if x == nil {
		return nil
	}
	run, all := x.run, len(x.data)
	if rec&recOwn == 0 {
		if run.priv.state != msgIdle || at == 0 || at > x.datagrams || size > all {
			r.Fail("%d datagrams in %d bytes are left of run %d of %d in %d", at, size, n, x.datagrams, all)
			return nil
		}
		run.Run, run.Data = at, x.data[all-size:]
		return run
	}
	if at > all || size > 0 && size > all-at-frames.Head || a.cuts.full() || x.acked == 0 {
		r.Fail("a datagram of %d bytes at %d of run %d of %d bytes", size, at, n, all)
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

// runOf is run n of the host. All of it counts as acked until the rest is known, see linkRuns.
func (a *msgReader) runOf(n uint32) *cutRun {
	if x := a.runs[n]; x != nil {
		return x
	}
	m := a.hosts(n)
	if m == nil || m.Run == 0 {
		a.r.Fail("message %d is no run", n)
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
func (a *msgReader) linkRuns() {
	for n, x := range a.runs { // each by itself
		p := &x.run.priv
		if x.acked -= x.run.Run; x.acked < 0 || x.run.Run == 0 && x.first == nil {
			a.r.Fail("run %d has %d datagrams too many, or none", n, -x.acked)
			return
		}
		p.state, p.posted = msgQueued, p.posted || x.acked > 0
		for part := x.first; part != nil; part = part.next {
			p.posted = p.posted || part.priv.posted
		}
	}
}
