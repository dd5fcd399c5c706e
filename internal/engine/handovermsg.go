package engine

import (
	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

const (
	mostMsgs = 1 << 28 // in a state
	usualMsg = 128     // bytes of a message without operations there, more or less
)

// What a message's record says of it.
const (
	txDone = 1 << iota
	txHanded
	txUngranted
	txToldUngranted
	txWaits // in its destination's queue
	txAsks
	txSilent
	txAckNow
	txUses // a region for one use, on this host
	txLong
	txInBuffer // its payload is, else in the send arena

	txAll = 1<<iota - 1
)

func (h *handing) encodeMessages() {
	w := h.w
	w.Begin(handover.TagMessages)
	w.Grow(len(h.txs.all) * usualMsg)
	w.Count(len(h.txs.all))
	for _, t := range h.txs.all {
		h.encodeMessage(t)
	}
	w.End()
}

// encodeMessage writes t. What is in shared memory is written as its place.
func (h *handing) encodeMessage(t *txMsg) {
	w, m := h.w, &t.m
	h.part(t.cl)
	uses := false
	for _, o := range t.ops() {
		g := h.keys.by[o.RKey()]
		uses = uses || g != nil && g.user == t
	}
	w.U32(h.socks.number(t.sock))
	w.U32(h.slots.number(t.slot))
	w.U32(h.pins.number(t.pin))
	w.U32(t.id)
	w.U32(t.name)
	w.U64(t.nth)
	w.Flags(t.done, t.handed, t.ungranted && !mutant.On(mutant.HandoverUngranted), t.toldUngranted, t.inQ.On(), t.slot.asks == t, m.Silent,
		m.AckNow, uses, t.long != nil, t.buf != nil)
	w.Int(t.sum.Datagrams)
	w.Int(t.sum.Bytes)
	w.U64(m.DestCookie)
	w.U32(m.DstInc)
	w.I64(m.At)
	limit := t.limit.When()
	if mutant.On(mutant.HandoverLimit) {
		limit = 0
	}
	w.I64(limit)
	w.U32(uint32(t.errno))
	w.U8(t.bad())
	w.U32(uint32(m.WCStatus))
	if !t.done {
		h.encodePayload(t)
	}
	w.Begin(handover.TagOperations)
	w.Count(t.nops)
	for _, o := range t.ops() {
		h.encodeOp(o)
	}
	if t.long != nil {
		h.encodeLong(t)
	}
	w.End()
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

func (h *handing) encodePayload(t *txMsg) {
	w := h.w
	buf := uint32(0)
	if t.buf != nil {
		buf = t.buf.id
	}
	data, run := t.m.Whole()
	if mutant.On(mutant.HandoverRun) {
		run = 0
	}
	w.U32(buf)
	w.U64(t.m.Addr)
	w.Int(len(data))
	w.Int(run)
}

func (t *taking) adoptMessages() {
	r := t.r
	r.Begin(handover.TagMessages)
	for range r.Count(mostMsgs, 5*4+8+2+8+8+8+4+8+8+4+1+4) {
		if t.adoptMessage(); r.Err() != nil {
			return
		}
	}
	for _, x := range t.txs {
		t.msgs = append(t.msgs, &x.m)
	}
	for _, x := range t.txs {
		if x.long != nil {
			for l := x.long.pieces.Head; l != nil; l = l.Next {
				t.msgs = append(t.msgs, &l.Of.m)
			}
		}
	}
	t.found = make([]bool, len(t.msgs))
	r.End()
}

func (t *taking) adoptMessage() {
	r := t.r
	t.part(nil)
	x := t.pools.msgs.Get()
	x.sock, x.slot, x.pin = at(r, t.socks, r.U32(), "socket"), at(r, t.slots, r.U32(), "destination"), at(r, t.pins, r.U32(), "pin")
	x.id, x.name, x.nth = r.U32(), r.U32(), r.U64()
	f := r.U16()
	x.sum = frames.Sum{Datagrams: r.Int(frames.MaxLen), Bytes: r.Int(abi.MaxMessage)}
	m := &x.m
	m.DestCookie, m.DstInc, m.At = r.U64(), r.U32(), r.I64()
	limit := r.I64()
	x.errno = unix.Errno(r.U32())
	bad := r.U8()
	m.WCStatus = verbs.WCStatus(r.U32())
	if r.Err() != nil {
		return
	}
	x.cl = x.sock.cl
	c := x.cl
	t.part(c)
	switch {
	case x.slot.sock != x.sock, x.slot.pin == nil, x.id >= uint32(len(c.msgs)) || c.msgs[x.id] != nil, f&^txAll != 0, x.nth > t.clock,
		x.sum.Datagrams == 0, limit < 0:
		r.Fail("message %d of client %d is there twice, or its flags are %#x", x.id, t.names[c], f)
		return
	}
	c.msgs[x.id] = x
	c.refs++
	t.txs = append(t.txs, x)
	x.done, x.handed, x.ungranted, x.toldUngranted = f&txDone != 0, f&txHanded != 0, f&txUngranted != 0, f&txToldUngranted != 0
	m.Owner, m.SPort, m.DPort, m.SrcInc = x, x.sock.port, x.slot.port, x.sock.inc
	m.Silent, m.AckNow = f&txSilent != 0, f&txAckNow != 0
	if !x.done {
		t.adoptPayload(x, f&txInBuffer != 0)
	}
	t.adoptOps(x, f)
	if r.Err() != nil {
		return
	}
	switch {
	case bad == 1 && x.nops > 0:
		m.Bad = m.Op
	case bad == 2 && x.nops > 1:
		m.Bad = m.Op2
	case bad != 0:
		r.Fail("operation %d of %d is bad", bad, x.nops)
	}
	if !x.done {
		t.listAgain(x, f, limit)
	}
}

// adoptPayload finds the payload of x in shared memory again.
func (t *taking) adoptPayload(x *txMsg, inBuffer bool) {
	r, m, c := t.r, &x.m, x.cl
	buf, addr, n := r.U32(), r.U64(), r.Int(abi.MaxMessage)
	m.Run = r.Int(frames.MaxLen)
	if r.Err() != nil {
		return
	}
	m.Payload = x.sum.Bytes
	switch {
	case m.Run == 0 && (x.sum.Datagrams != 1 || x.sum.Bytes != n), m.Run != 0 && (m.Run != x.sum.Datagrams || n > frames.MaxLen || n == 0 || inBuffer),
		m.Run != 0 && (x.sum.Bytes > n-frames.Size(0)*m.Run || x.slot.port == 0):
		r.Fail("%d bytes with %d bytes of payload in %d datagrams, a run of %d", n, x.sum.Bytes, x.sum.Datagrams, m.Run)
	case n == 0 && !inBuffer:
	case inBuffer:
		b := c.buffers[buf]
		if b == nil || n == 0 || addr > uint64(len(b.mem)) || uint64(n) > uint64(len(b.mem))-addr {
			r.Fail("a payload of %d bytes at %d in buffer %d", n, addr, buf)
			return
		}
		x.buf = b
		b.users++
		m.Data, m.Addr, m.LKey = b.mem[addr:][:n:n], addr, b.mr.LKey()
	default:
		w, in := addr/shm.WindowSize, addr%shm.WindowSize
		if w >= uint64(len(c.send)) || in+uint64(n) > shm.WindowSize {
			r.Fail("a payload of %d bytes at %d in %d send windows", n, addr, len(c.send))
			return
		}
		m.Data, m.Addr, m.LKey = c.send[w].mem[in:][:n:n], addr, c.send[w].mr.LKey()
	}
}

// listAgain begins the accounting of x, which is not done, and puts it where it waits.
func (t *taking) listAgain(x *txMsg, f uint16, limit int64) {
	sl := x.slot
	sl.msgs++
	sl.txs.Add(&x.inTo, x)
	x.sock.txs.Add(&x.all, x)
	x.sock.sndMsgs += x.sum.Datagrams
	x.sock.sndBytes += x.sum.Bytes
	t.queued.msgs += x.sum.Datagrams
	t.queued.bytes += x.sum.Bytes
	x.sock.ops += x.nops
	t.queued.ops += x.nops
	x.cl.acct.ops += x.nops
	if limit != 0 {
		t.due.limits.Set(&x.limit, x, limit)
	}
	if x.handed {
		sl.handed += x.sum.Datagrams
	}
	if f&txWaits != 0 {
		sl.q.Add(&x.inQ, x)
	}
	if f&txAsks != 0 {
		if sl.asks != nil {
			t.r.Fail("two messages ask for the socket at %v:%d", sl.addr, sl.port)
		}
		sl.asks = x
	}
	switch waits := f&txWaits != 0; {
	case waits && x.handed, waits && x.long != nil && x.long.ended, f&txAsks != 0 && !x.handed,
		!waits && !x.handed && (x.long == nil || !x.long.ended), x.sock.took == nil:
		t.r.Fail("message %d of client %d is nowhere, or in two places: flags %#x", x.id, t.names[x.cl], f)
	}
}

// find returns message n for a connection that had it. It returns nil if the connection
// cannot have had it.
func (t *taking) find(n uint32) *conn.Msg {
	if uint64(n) >= uint64(len(t.msgs)) {
		return nil
	}
	m := t.msgs[n]
	if x, ok := m.Owner.(*txMsg); ok {
		if x.done || !x.handed || x.long != nil && x.long.ended {
			return nil
		}
	}
	t.found[n] = true
	return m
}

// linkMessages checks that connections have all messages that they had.
func (t *taking) linkMessages() {
	for n, m := range t.msgs {
		x, ok := m.Owner.(*txMsg)
		switch {
		case t.found[n]:
		case ok && (x.done || !x.handed || x.long != nil && x.long.ended):
		default:
			t.part(nil)
			if ok {
				t.part(x.cl)
			} else if pc, is := m.Owner.(*piece); is {
				t.part(pc.t.cl)
			}
			t.r.Fail("no connection has a message that was handed to one")
			return
		}
	}
	for _, x := range t.txs {
		t.part(x.cl)
		switch {
		case x.inQ.On() && x.slot.peer == nil && x.slot.lead == nil && x.slot.local == nil:
			t.r.Fail("message %d of client %d waits for nothing", x.id, t.names[x.cl])
		case x.inQ.On() && x.slot.local != nil && x.slot.waitOn == nil:
			t.addJob(x.slot)
		case x.done && !x.inPend.On(), x.handed && !x.done && x.slot.peer == nil:
			t.r.Fail("message %d of client %d was lost", x.id, t.names[x.cl])
		}
		if t.r.Err() != nil {
			return
		}
	}
	t.part(nil)
}
