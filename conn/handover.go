package conn

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
)

// ErrNotKept: a connection to a Linux kernel with half a run on its way cannot be handed
// over.
var ErrNotKept = errors.New("conn: parts of runs are on their way to a Linux kernel")

var errNotDown = errors.New("conn: handed over before it is halted and Down")

// allPorts is how many ports there are.
const allPorts = 1 << 16

// mostListed bounds a list of messages in a state that is read.
const mostListed = 1 << 24

// Encode returns the state that a Conn needs that takes this one's place in another
// process, in a version of internal/handover. The Conn is halted and Down. number names a
// message of the host for Adopt's find.
func (c *Conn) Encode(version uint16, number func(*Msg) uint32) ([]byte, error) {
	c.calls.called(callDrive)
	switch {
	case version < handover.Oldest || version > handover.Newest:
		return nil, fmt.Errorf("conn: hand over in version %d: there are %d to %d", version, handover.Oldest, handover.Newest)
	case !c.halt.on || c.state != Down || c.closed:
		return nil, errNotDown
	case c.cuts.runs != nil:
		return nil, ErrNotKept
	}
	w := handover.NewWriter(version)
	c.encode(w, number)
	return w.Bytes(), nil
}

func (c *Conn) encode(w *handover.Writer, number func(*Msg) uint32) {
	w.Begin(handover.TagConn)
	w.U64(c.peer)
	last := c.in.last
	if mutant.On(mutant.HandoverReceived) {
		last = 0
	}
	w.U64(last)
	w.U64(c.out.nextTx)
	w.U64(c.settling.acked)
	w.I64(c.settling.expires)
	w.I64(c.redial.ceiling)
	w.I64(c.redial.at)
	w.I64(c.since)
	w.Int(c.halt.again)
	w.Bool(c.k.on)
	w.Bool(c.cong.told)
	why := ""
	if c.why != nil {
		why = c.why.Error()
	}
	w.String(why[:min(len(why), mostWhy)])
	c.encodeCounts(w)
	w.Count(len(c.in.refusing))
	for p := range allPorts { // in order, so that the same state has the same bytes
		if _, is := c.in.refusing[uint16(p)]; is {
			w.U16(uint16(p))
		}
	}
	var m [cong.Len]byte
	if c.cong.remote.Empty() {
		w.Blob(nil)
	} else {
		c.cong.remote.Put(m[:])
		w.Blob(m[:])
	}
	w.Count(len(c.stops.list))
	for _, st := range c.stops.list {
		w.U16(st.port)
		w.Bool(st.stopped && !mutant.On(mutant.HandoverStopped))
		encodeList(w, &st.refused, number)
		encodeList(w, &st.behind, number)
	}
	for _, l := range c.kept() {
		encodeList(w, l, number)
	}
	w.End()
}

// mostWhy bounds the text of an error that is handed over.
const mostWhy = 1 << 10

// kept are the lists that a Conn that is Down may have messages on, stopped ports aside.
func (c *Conn) kept() [4]*msgList {
	return [4]*msgList{&c.out.rtx, &c.out.notices, &c.out.control, &c.out.queue}
}

// encodeCounts writes the counters and what was measured.
func (c *Conn) encodeCounts(w *handover.Writer) {
	v := reflect.ValueOf(&c.stats).Elem()
	w.Count(v.NumField())
	for i := range v.NumField() {
		w.U64(v.Field(i).Uint())
	}
	w.I64(c.rtt.Last)
	w.I64(c.rtt.Smoothed)
	w.I64(c.rtt.Least)
	w.I64(c.rtt.At)
}

func (c *Conn) adoptCounts(r *handover.Reader) {
	v := reflect.ValueOf(&c.stats).Elem()
	if n := r.Count(v.NumField(), 8); n != v.NumField() {
		r.Fail("%d counters of a connection, not %d", n, v.NumField())
		return
	}
	for i := range v.NumField() {
		v.Field(i).SetUint(r.U64())
	}
	c.rtt.Last, c.rtt.Smoothed, c.rtt.Least, c.rtt.At = r.I64(), r.I64(), r.I64(), r.I64()
}

// What a message's record says of it.
const (
	recOwn = 1 << iota
	recPosted
	recOpPosted
	recOpProven
	recAckNow
	recCarried
	recAnswered

	recAll = 1<<iota - 1
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
			{p.opPosted && p.carried, recCarried}, {p.answered, recAnswered}} {
			if f.is && (f.bit != recOpPosted || !mutant.On(mutant.HandoverPosted)) && (f.bit != recAnswered || !mutant.On(mutant.HandoverAnswered)) {
				rec |= f.bit
			}
		}
		w.U8(rec)
		w.U64(p.seq)
		w.U16(uint16(p.flags))
		if !p.own {
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

// Adopt has a new Conn go on from a state that Encode returned. It is halted then, until
// Resume. find returns the host's message of a number, or nil if there is none. After an
// error, that the state is none or does not fit together, the Conn is not to be used.
func (c *Conn) Adopt(state []byte, find func(number uint32) *Msg) error {
	c.calls.called(callDrive)
	c.halt.ops, c.halt.on = true, true
	r, err := handover.NewReader(state)
	if err != nil {
		return err
	}
	c.adopt(r, find)
	return r.Close()
}

func (c *Conn) adopt(r *handover.Reader, find func(uint32) *Msg) {
	r.Begin(handover.TagConn)
	c.peer, c.in.last, c.out.nextTx = r.U64(), r.U64(), r.U64()
	c.settling.acked, c.settling.expires = r.U64(), r.I64()
	c.redial.ceiling, c.redial.at, c.since = r.I64(), r.I64(), r.I64()
	c.halt.again = r.Int(againTries)
	c.k.on, c.cong.told = r.Bool(), r.Bool()
	if why := r.String(mostWhy); why != "" {
		c.why = errors.New(why)
	}
	switch {
	case c.out.nextTx == 0, c.settling.acked >= c.out.nextTx:
		r.Fail("the next sequence is %d, acked are %d", c.out.nextTx, c.settling.acked)
	case c.peer == 0 && c.in.last != 0:
		r.Fail("received up to %d of a peer that was never met", c.in.last)
	case c.redial.ceiling < 0 || c.redial.ceiling > c.cfg.MaxBackoff:
		r.Fail("a back-off of %d ns", c.redial.ceiling)
	}
	c.adoptCounts(r)
	for range r.Count(allPorts, 2) {
		c.in.refusing[r.U16()] = struct{}{}
	}
	if b := r.Blob(cong.Len); len(b) == cong.Len {
		_ = c.cong.remote.Load(b, nil)
	} else if len(b) != 0 {
		r.Fail("a congestion map of %d bytes", len(b))
	}
	c.adoptStops(r, find)
	for _, l := range c.kept() {
		c.adoptList(r, l, l == &c.out.rtx, find)
	}
	c.stops.due, c.out.untilAsk = true, askEvery
	r.End()
}

// adoptStops reads the ports that have refused.
func (c *Conn) adoptStops(r *handover.Reader, find func(uint32) *Msg) {
	for range r.Count(allPorts, 2+1+4+4) {
		st := &portStop{port: r.U16(), stopped: r.Bool(), nth: len(c.stops.list)}
		if c.stops.of[st.port] != nil {
			r.Fail("port %d has refused twice", st.port)
		}
		c.stops.of[st.port] = st
		c.stops.list = append(c.stops.list, st)
		for _, l := range st.lists() {
			c.adoptList(r, l, false, find)
			if !st.stopped && l.n > 0 {
				r.Fail("port %d was released and keeps %d messages", st.port, l.n)
			}
		}
	}
}

// adoptList reads a list of messages. numbered says that each has a sequence, in order.
func (c *Conn) adoptList(r *handover.Reader, l *msgList, numbered bool, find func(uint32) *Msg) {
	last := uint64(0)
	for range r.Count(mostListed, 1+8+2+4) {
		rec, seq, flags := r.U8(), r.U64(), r.U16()
		m := c.adoptMsg(r, rec, find)
		if r.Err() != nil {
			return
		}
		switch {
		case rec&^recAll != 0 || flags&^uint16(wire.FlagRetransmitted|wire.FlagResume|wire.FlagAckRequired) != 0:
			r.Fail("a message with flags %#x and %#x", rec, flags)
		case numbered && (seq <= last || seq >= c.out.nextTx), !numbered && seq != 0:
			r.Fail("a message with sequence %d behind %d, the next one is %d", seq, last, c.out.nextTx)
		case rec&(recOpProven|recCarried) != 0 && rec&recOpPosted == 0, rec&recOpPosted != 0 && m.Op == nil,
			rec&recCarried != 0 && m.atomic() == nil, rec&recAnswered != 0 && (rec&recCarried == 0 || rec&recPosted == 0 || seq == 0):
			r.Fail("a message with operation flags %#x", rec)
		}
		last = seq
		p := &m.priv
		p.state, p.seq, p.flags = msgQueued, seq, wire.Flags(flags)
		p.posted, p.opPosted, p.opProven = rec&recPosted != 0, rec&recOpPosted != 0, rec&recOpProven != 0
		p.carried, p.answered = rec&recCarried != 0, rec&recAnswered != 0
		p.opLocal = p.opPosted && m.hasRDMA() // no work request is left
		if st := c.stops.of[m.DPort]; numbered && st != nil && st.stopped && m.Internal == 0 {
			p.stop = st
			st.inflight++
		}
		l.push(m)
	}
}

// adoptMsg finds a message of the host, or makes one of the Conn's own.
func (c *Conn) adoptMsg(r *handover.Reader, rec uint8, find func(uint32) *Msg) *Msg {
	if rec&recOwn == 0 {
		n := r.U32()
		if r.Err() != nil {
			return nil
		}
		m := find(n)
		if m == nil || m.priv.state != msgIdle {
			r.Fail("message %d is not there, or twice", n)
			return nil
		}
		m.priv = msgPriv{}
		return m
	}
	if c.own.n >= 2*maxOwing {
		r.Fail("more than %d messages of the connection's own", c.own.n)
		return nil
	}
	o := c.own.take()
	o.SPort, o.DPort, o.SrcInc, o.DstInc = r.U16(), r.U16(), r.U32(), r.U32()
	o.Internal, o.priv.about = wire.InternalType(r.U16()), r.U64()
	o.AckNow = rec&recAckNow != 0
	o.Data = o.body[:copy(o.body[:], r.Blob(len(o.body)))]
	return &o.Msg
}
