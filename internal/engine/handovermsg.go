package engine

import (
	"slices"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
)

const (
	mostMsgs = 1 << 28 // in a state
	usualMsg = 128     // bytes of a message without operations there, more or less
)

// txState is what a message's record says of it besides what its txMsg holds.
type txState struct {
	done     bool
	waits    bool // in its destination's queue
	asks     bool // its destination's socket, see slot.asks
	uses     bool // a region for one use, on this host
	long     bool
	inBuffer bool // its payload is, else in the send arena
	buf      uint32
	addr     uint64 // of the payload, as in msg.Msg
	n, run   int    // bytes there, and datagrams of a run
	limit    int64
	bad      uint8 // which operation msg.Msg.Bad is, counted from 1, or 0
}

func (x *crossing) handOverMessages() {
	s := x.s
	s.Grow(len(x.txs.All) * usualMsg)
	n := s.Count(len(x.txs.All), mostMsgs, 5*4+8+2+8+8+8+4+8+8+4+1+4)
	if s.Reads() {
		x.txs.All = slices.Grow(x.txs.All, n)
	}
	for i := range n {
		t := handover.Nth(s, x.txs.All, i)
		if s.Reads() {
			x.part(nil)
			t = x.pools.msgs.Get()
		} else {
			x.txs.Mark(i)
		}
		if x.handOverMessage(t); s.Reads() && s.Err() != nil {
			return
		}
	}
	if !s.Reads() {
		return
	}
	x.msgs = make([]crossed, 0, n)
	for _, t := range x.txs.All {
		x.msgs = append(x.msgs, crossed{m: &t.m})
	}
	for _, t := range x.txs.All {
		if t.long != nil {
			for l := t.long.pieces.Head; l != nil; l = l.Next {
				x.msgs = append(x.msgs, crossed{m: &l.Of.m})
			}
		}
	}
}

// of sets st to the state of a message that is written.
func (st *txState) of(x *crossing, t *txMsg) {
	st.done, st.waits, st.asks, st.long, st.inBuffer, st.limit, st.bad = t.done(), t.inQ.On(), t.slot.asks == t, t.long != nil, t.buf != nil, t.limit.When(), t.bad()
	if !st.done {
		data, run := t.m.Whole()
		st.addr, st.n, st.run = t.m.Addr, len(data), run
	}
	if st.inBuffer {
		st.buf = t.buf.id
	}
	for _, o := range t.ops() {
		g := x.keys.by[o.RKey()]
		st.uses = st.uses || g != nil && g.user == t
	}
}

// handOverMessage has t go over. What is in shared memory goes over as its place.
func (x *crossing) handOverMessage(t *txMsg) {
	s, m, st := x.s, &t.m, txState{}
	if !s.Reads() {
		x.part(t.sock.cl)
		st.of(x, t)
	}
	x.socks.Ref(s, &t.sock, "socket")
	x.slots.Ref(s, &t.slot, "destination")
	x.pins.Ref(s, &t.pin, "pin")
	s.U32s(&t.id, &t.name)
	s.U64(&t.nth)
	f, known := s.Flags(&st.done, &t.handed, &t.ungranted, &t.toldUngranted, &st.waits, &st.asks,
		&m.Silent, &m.AckNow, &st.uses, &st.long, &st.inBuffer)
	s.Int(&t.sum.Datagrams, frames.MaxLen)
	s.Int(&t.sum.Bytes, abi.MaxMessage)
	s.U64(&m.DestCookie)
	s.U32(&m.DstInc)
	s.I64s(&m.At, &st.limit)
	handover.As32(s, &t.errno)
	s.U8(&st.bad)
	handover.As32(s, &m.WCStatus)
	if s.Reads() && !x.adoptMessage(t, &st, f, known) {
		return
	}
	if !st.done {
		s.U32(&st.buf)
		s.U64(&st.addr)
		s.Int(&st.n, abi.MaxMessage)
		s.Int(&st.run, frames.MaxLen)
		if s.Reads() && s.Err() == nil {
			x.payloadAgain(t, &st)
		}
	}
	if s.Version() >= 5 {
		s.Bool(&t.notify)
	}
	if s.Version() >= 6 {
		x.handOverTraceparent(t, st.done)
	}
	s.Begin(handover.TagOperations)
	x.handOverOps(t, &st)
	if s.End(); s.Reads() && s.Err() == nil {
		x.messageAgain(t, &st, f)
	}
}

// handOverTraceparent has the Traceparent of t go over.
func (x *crossing) handOverTraceparent(t *txMsg, done bool) {
	var b []byte
	if p := t.m.Traceparent; !x.s.Reads() && p != nil && !done {
		b = p[:]
	}
	if x.s.Blob(&b, wire.TraceparentLen); !x.s.Reads() || len(b) == 0 || x.s.Err() != nil {
		return
	}
	if len(b) < wire.TraceparentLen || t.m.Run != 0 {
		x.s.Fail("a traceparent that is cut off, or of a run")
		return
	}
	t.belongs(b)
}

// adoptMessage enters a message that was read up to its payload. It returns false after an error.
func (x *crossing) adoptMessage(t *txMsg, st *txState, f uint16, known bool) bool {
	if x.s.Err() != nil {
		return false
	}
	c, m := t.sock.cl, &t.m
	x.part(c)
	switch {
	case t.slot.sock != t.sock, t.slot.pin == nil, t.id >= uint32(len(c.msgs)) || c.msgs[t.id] != nil, !known, t.nth > x.clock,
		t.sum.Datagrams == 0, st.limit < 0:
		x.s.Fail("message %d of client %d is there twice, or its flags are %#x", t.id, c.session, f)
		return false
	}
	c.msgs[t.id] = t
	c.refs++
	x.txs.All = append(x.txs.All, t)
	m.Owner, m.SPort, m.DPort, m.SrcInc, m.Anybody = t, t.sock.port, t.slot.port, t.sock.inc, t.pin.anybody()
	return true
}

// messageAgain says which operation of t is bad, and puts t where it waits.
func (x *crossing) messageAgain(t *txMsg, st *txState, f uint16) {
	switch {
	case st.bad == 1 && t.nops > 0:
		t.m.Bad = t.m.Op
	case st.bad == 2 && t.nops > 1:
		t.m.Bad = t.m.Op2
	case st.bad != 0:
		x.s.Fail("operation %d of %d is bad", st.bad, t.nops)
	}
	if !st.done {
		x.listAgain(t, st, f)
	}
}

// bad is which operation m.Bad is, counted from 1, or 0.
func (t *txMsg) bad() uint8 {
	switch b := t.m.Bad; {
	case b == nil:
		return 0
	case t.nops > 1 && b == &t.opv[1].Op:
		return 2
	}
	return 1
}

// payloadAgain finds the payload of t in shared memory again.
func (x *crossing) payloadAgain(t *txMsg, st *txState) {
	m, c, n := &t.m, t.sock.cl, st.n
	m.Run, m.Payload = st.run, t.sum.Bytes
	switch {
	case m.Run == 0 && (t.sum.Datagrams != 1 || t.sum.Bytes != n), m.Run != 0 && (m.Run != t.sum.Datagrams || n > frames.MaxLen || n == 0 || st.inBuffer),
		m.Run != 0 && (t.sum.Bytes > n-frames.Size(0)*m.Run || t.slot.port == 0):
		x.s.Fail("%d bytes with %d bytes of payload in %d datagrams, a run of %d", n, t.sum.Bytes, t.sum.Datagrams, m.Run)
	case n == 0 && !st.inBuffer:
	case st.inBuffer:
		b := c.buffers[st.buf]
		if b == nil || n == 0 || !b.has(st.addr, uint64(n)) {
			x.s.Fail("a payload of %d bytes at %d in buffer %d", n, st.addr, st.buf)
			return
		}
		t.buf = b
		m.Data, m.Addr, m.LKey = b.mem[st.addr:][:n:n], st.addr, b.mr.LKey()
	default:
		mem, w := c.sent(st.addr, uint64(n))
		if w == nil {
			x.s.Fail("a payload of %d bytes at %d in %d send windows", n, st.addr, len(c.send))
			return
		}
		m.Data, m.Addr, m.LKey = mem, st.addr, w.mr.LKey()
	}
}

// listAgain begins the accounting of t, which is not done, and puts it where it waits.
func (x *crossing) listAgain(t *txMsg, st *txState, f uint16) {
	sl := t.slot
	x.tx.list(t)
	x.tx.countOps(t, t.nops)
	if st.limit != 0 {
		x.due.limits.Set(&t.limit, t, st.limit)
	}
	if t.handed {
		sl.handed += t.sum.Datagrams
	}
	if st.waits {
		t.sought = t.nops > 0 // what was asked for is asked for again
		sl.queue(t)
	}
	if st.asks {
		if sl.asks != nil {
			x.s.Fail("two messages ask for the socket at %v:%d", sl.addr, sl.port)
		}
		sl.asks = t
	}
	switch {
	case st.waits && t.handed, st.waits && t.long != nil && t.long.ended, st.asks && !t.handed,
		!st.waits && !t.handed && (t.long == nil || !t.long.ended), t.sock.took == nil:
		x.s.Fail("message %d of client %d is nowhere, or in two places: flags %#x", t.id, t.sock.cl.session, f)
	}
}

// find returns message n for a connection that had it. It returns nil if the connection
// cannot have had it.
func (x *crossing) find(n uint32) *msg.Msg {
	if uint64(n) >= uint64(len(x.msgs)) || !x.msgs[n].handed() {
		return nil
	}
	x.msgs[n].found = true
	return x.msgs[n].m
}

// handed reports whether a connection has to have m.
func (m crossed) handed() bool {
	t, whole := m.m.Owner.(*txMsg)
	return !whole || !t.done() && t.handed && (t.long == nil || !t.long.ended)
}

// linkMessages checks that connections have all messages that they had.
func (x *crossing) linkMessages() {
	for _, m := range x.msgs {
		if m.found || !m.handed() {
			continue
		}
		t, whole := m.m.Owner.(*txMsg)
		if !whole {
			t = m.m.Owner.(*piece).t
		}
		x.part(t.sock.cl)
		x.s.Fail("no connection has a message that was handed to one")
		return
	}
	for _, t := range x.txs.All {
		x.part(t.sock.cl)
		_, away := t.slot.way.(*peer) // a state may say that others have handed messages to a connection
		switch {
		case t.inQ.On() && t.slot.lead == nil && t.slot.way == transport(&x.dests.nowhere):
			x.s.Fail("message %d of client %d waits for nothing", t.id, t.sock.cl.session)
		case t.done() && !t.inPend.On(), t.handed && !t.done() && !away:
			x.s.Fail("message %d of client %d was lost", t.id, t.sock.cl.session)
		}
		if x.s.Err() != nil {
			return
		}
	}
	x.part(nil)
}
