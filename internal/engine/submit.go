package engine

import (
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/chores"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/trace"
	"golang.org/x/sys/unix"
)

// sender has what processes submit on its way to connections and to this host. Engine-owned.
type sender struct {
	e          *Engine
	cancelling chores.Work[slot]  // their messages are being withdrawn
	broken     chores.Work[txMsg] // of their operations a piece has failed
	queued     queued
	acked      acked
}

// queued counts what all sockets have submitted: messages that were not returned yet, their
// bytes, and operations that have not settled.
type queued struct{ msgs, bytes, ops int }

// txMsg is a submitted message. It exists from the message's descriptor to the return of
// its id. Pooled.
type txMsg struct {
	handover.InState
	m      msg.Msg
	all    lists.Link[txMsg] // socket.txs
	inTo   lists.Link[txMsg] // slot.txs
	inQ    lists.Link[txMsg] // slot.q
	inPend lists.Link[txMsg] // pending.pendOps: it has statuses to be told
	sock   *socket
	slot   *slot
	pin    *pin   // of slot, when it was submitted
	name   uint32 // incarnation of the destination that the application named, 0: none
	id     uint32
	sum    frames.Sum       // what it has, as its client says: NonEmpty is not known
	nth    uint64           // Engine.clock then
	parent wire.Traceparent // m's, if it has one

	buf *buffer // its payload is in there, nil: in the send arena

	limit lists.Alarm[txMsg] // in deadlines.limits

	traced   trace.Set // the traces that follow it
	traceSeq uint64    // its sequence there

	opv    [2]*txOp
	nops   int
	long   *long      // its operation goes in pieces, of which the first was handed over
	errno  unix.Errno // why m.Bad was refused
	handed bool       // to its connection
	notify bool       // it has no operations, and its status is to be told, see outcome

	sought        bool // a key of its operations was not granted when it was submitted: see wants
	asked         *ask // the question for one of them, nil: none yet
	ungranted     bool // the cookie it carries is to be granted when it is handed on
	toldUngranted bool // its socket is told that the cookie could not be granted
}

// ops are the operations of t: none, an RDMA operation, an atomic, or both in
// this order.
func (t *txMsg) ops() []*txOp { return t.opv[:t.nops] }

// done reports whether t has ended. It stays while its statuses wait for room.
func (t *txMsg) done() bool { return !t.all.On() }

// What descriptors cost against a client's bytes per turn, besides payload:
// about the time it takes to copy so much.
const (
	openCost = 1 << 10 // a destination, perhaps a connection
	segCost  = 128     // a local segment
	scanCost = 64      // a message looked at
)

// pollClient empties one client's submission and return rings within its
// budget.
func (tx *sender) pollClient(c *Client) bool {
	e := tx.e
	n, bytes, work := 0, 0, false
	for n < subBudget && bytes < subBytes && c.sub.Next(&c.scratch) {
		n++
		switch c.scratch.Kind() {
		case uint8(shm.KindSend), uint8(shm.KindRun):
			bytes += tx.submit(c, *c.scratch.Sub(), nil)
		case uint8(shm.KindSendOp):
			sub := *c.scratch.Sub()
			var ops [2]shm.SubOp
			want := 1 + int(sub.Flags&shm.SubTwoOps/shm.SubTwoOps)
			for i := range want {
				if !c.sub.Next(&c.scratch) {
					e.clients.kill(c, "operation descriptor missing")
					return true
				}
				ops[i] = *c.scratch.SubOp()
			}
			n += want
			bytes += tx.submit(c, sub, ops[:want])
		case uint8(shm.KindOpenDest):
			bytes += openCost
			e.dests.openSlot(c, c.scratch.SubDest())
		case uint8(shm.KindCloseDest):
			if d := c.scratch.SubDest(); c.slot(d.Slot, d.Sock) != nil {
				e.dests.closeSlot(c.slots[d.Slot])
			}
		case uint8(shm.KindCancel):
			bytes += tx.cancelDest(c, c.scratch.Sub())
		default:
			e.clients.kill(c, "unknown descriptor kind %d", c.scratch.Kind())
		}
		if c.dead {
			return true
		}
	}
	if n > 0 {
		c.sub.Release()
		work = true
	}
	if err := c.sub.Err(); err != nil {
		e.clients.kill(c, "submission ring: %w", err)
		return true
	}
	returned := false
	for range 4 * subBudget {
		id, ok := c.rret.Take()
		if !ok {
			break
		}
		if !e.rx.returnRx(c, id) {
			e.clients.kill(c, "receive id %d returned twice or never given", id)
			return true
		}
		returned = true
	}
	if returned {
		c.rret.Release()
		work = true
	}
	if c.mayWrite() {
		work = e.clients.writePending(c) || work
	}
	if err := c.ringError(); err != nil {
		e.clients.kill(c, "%w", err)
		return true
	}
	return work
}

// submit takes one message in and returns its payload length. Everything in
// the descriptor is checked against the engine's own tables; what only a
// broken or hostile client can do ends its session.
func (tx *sender) submit(c *Client, d shm.Sub, ods []shm.SubOp) int {
	e := tx.e
	if d.MsgID >= uint32(len(c.msgs)) || c.msgs[d.MsgID] != nil {
		e.clients.kill(c, "message id %d out of range or in use", d.MsgID)
		return 0
	}
	pay, err := c.payload(&d)
	if err != nil {
		e.clients.kill(c, "payload: %w", err)
		return 0
	}
	s := c.sock(d.Sock)
	var sl *slot
	if d.Slot < uint32(len(c.slots)) {
		sl = c.slots[d.Slot]
	}
	if s == nil || sl == nil || sl.sock != s {
		if s != nil {
			e.clients.kill(c, "destination slot %d is not open for socket %d", d.Slot, d.Sock)
			return 0
		}
		// The socket was closed with this still in the ring.
		c.sret.Put(d.MsgID)
		e.clients.news(c)
		return 0
	}
	if pay.run != 0 && sl.port == 0 {
		e.clients.kill(c, "a run of pings")
		return 0
	}
	if sl.lead == nil {
		e.dests.needPlace(sl)
	}
	sl.used = true
	if sl.pin.gone && sl.now(sl.pin).gone {
		sl.meetAnew(len(ods))
	}
	tx.countSent(s, &pay)
	if len(ods) == 0 && e.loop.passOn(c, s, sl, &d, &pay) {
		return len(pay.mem)
	}
	t := e.pools.msgs.Get()
	t.sock, t.slot, t.id = s, sl, d.MsgID
	t.pin, t.name = sl.pin, d.DstInc
	// t.m is zero. Field by field: see arrival.
	m := &t.m
	m.Owner, m.SPort, m.DPort, m.SrcInc = t, s.port, sl.port, s.inc
	m.Data, m.Addr, m.LKey, m.Run, m.Payload = pay.mem, pay.addr, pay.lkey, pay.run, pay.sum.Bytes
	t.notify = d.Flags&shm.SubNotify != 0
	m.Anybody, m.AckNow, m.DestCookie, m.At, m.Watched = sl.pin.anybody(), d.Flags&shm.SubAckNow != 0, d.Cookie, e.now, e.traces.On
	t.sum, t.buf = pay.sum, pay.buf
	if d.Flags&shm.SubTraceparent != 0 {
		t.belongs(c.traceparent(&d))
	}
	c.msgs[d.MsgID] = t
	c.refs++
	t.nth = e.peers.tick()
	tx.list(t)
	if d.GiveUp != 0 {
		tx.limit(t, d.GiveUp)
	}
	cost := len(pay.mem)
	if len(ods) > 0 {
		for i := range ods {
			cost += segCost * int(ods[i].NSeg)
		}
		if !tx.submitOps(t, &d, ods) {
			return cost
		}
	}
	sl.way.take(t)
	return cost
}

// countSent counts a message that is taken in, whichever way it goes.
func (tx *sender) countSent(s *socket, pay *payload) {
	e := tx.e
	s.sent.add(&pay.sum)
	e.st.C[stats.SendQueued] += uint64(pay.sum.Datagrams)
	e.st.C[stats.SendBytes] += uint64(pay.sum.Bytes)
	if pay.buf == nil {
		e.st.C[stats.CopyFromUser] += uint64(pay.sum.Bytes)
	}
}

// msgDone ends a message: its statuses, the destination's notices,
// and the return of the id, which gives the payload back to the client.
func (tx *sender) msgDone(t *txMsg, o msg.Outcome) {
	e := tx.e
	if t.traced != 0 {
		e.traces.end(t, o)
	}
	e.dests.answered(t, o)
	n := uint64(t.sum.Datagrams)
	if t.m.Ended != 0 {
		n = uint64(t.m.Ended) // the others were acked
	}
	acked := uint64(t.sum.Datagrams) - n
	if o == msg.Acked {
		acked += n
	}
	if acked > 0 {
		e.st.C[stats.SendAcked] += acked
		e.watch.msgTook(t, acked)
	}
	switch o {
	case msg.Cancelled:
		e.st.C[stats.MsgCancelled] += n
	case msg.Lost:
		t.slot.lost += n
		e.clients.note(t.slot)
	case msg.NoSock:
		t.slot.nosock += n
		e.clients.note(t.slot)
	case msg.OpRefused:
		if t.nops == 0 && !t.notify { // the cookie it carries
			t.slot.ungranted++
			e.clients.note(t.slot)
		}
	case msg.Withdrawn, msg.GaveUp:
		if t.nops == 0 && !t.notify { // else there is a status
			t.slot.gaveUp += n
			e.clients.note(t.slot)
		}
	}
	tx.unlist(t)
	switch {
	case t.nops > 0:
		tx.opsDone(t, o)
	case t.notify:
		tx.outcome(t, o)
	}
	if !t.inPend.On() {
		tx.giveBack(t)
	}
}

// giveBack ends t: its client has the id again, and with it the payload. Not
// before its statuses have been written, so that the ids bound the statuses of a
// client that does not take them.
func (tx *sender) giveBack(t *txMsg) {
	if c := t.sock.cl; c.msgs[t.id] == t {
		c.msgs[t.id] = nil
		if !c.dead {
			c.sret.Put(t.id)
			tx.e.clients.news(c)
		}
	}
	tx.freeMsg(t)
}

// list begins t's accounting.
func (tx *sender) list(t *txMsg) {
	t.slot.msgs++
	t.slot.txs.Add(&t.inTo, t)
	if t.buf != nil {
		t.buf.users++
	}
	t.sock.txs.Add(&t.all, t)
	t.sock.sndMsgs += t.sum.Datagrams
	t.sock.sndBytes += t.sum.Bytes
	tx.queued.msgs += t.sum.Datagrams
	tx.queued.bytes += t.sum.Bytes
}

// unlist ends t's accounting.
func (tx *sender) unlist(t *txMsg) {
	e := tx.e
	e.due.limits.Drop(&t.limit)
	if t.handed {
		t.handed = false
		t.slot.handed -= t.sum.Datagrams
	}
	t.slot.txs.Del(&t.inTo)
	if t.slot.msgs--; t.slot.msgs == 0 {
		e.dests.mayGiveWay(t.slot)
	}
	if b := t.buf; b != nil {
		t.buf = nil
		b.users--
		e.keys.maybeFreeBuffer(b)
	}
	if t.sock.txs.Del(&t.all); t.sock.txs.N == 0 {
		e.st.C[stats.SendQueueEmpty]++
	}
	t.sock.sndMsgs -= t.sum.Datagrams
	t.sock.sndBytes -= t.sum.Bytes
	tx.queued.msgs -= t.sum.Datagrams
	tx.queued.bytes -= t.sum.Bytes
}

// freeMsg returns t to the pool.
func (tx *sender) freeMsg(t *txMsg) {
	e := tx.e
	c := t.sock.cl
	for i, o := range t.ops() {
		t.opv[i] = nil
		tx.freeOp(c, o)
	}
	t.m = msg.Msg{}
	t.sock, t.slot, t.pin, t.asked = nil, nil, nil, nil
	t.sum, t.traced, t.traceSeq = frames.Sum{}, 0, 0
	t.errno, t.nops, t.notify, t.sought, t.ungranted, t.toldUngranted = 0, 0, false, false, false, false
	e.pools.msgs.Put(t)
	e.clients.unref(c)
}
