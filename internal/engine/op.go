package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/trace"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// txOp is an operation of a message. Pooled.
type txOp struct {
	rdmaop.Op
	bufs   []*buffer // local buffers it uses, one per segment
	copied uint64    // same host: bytes done
	tell   bool      // its status waits for room in the event ring
	at     int64     // Engine.now when it was posted, 0: it was not, or its time was counted
	place  barrier.Op
}

// submitOps reads the operations of a message. It reports whether the message
// goes on; if not, it has been ended: with statuses where the application is
// at fault, with its session where only a broken client can be.
func (tx *sender) submitOps(t *txMsg, d *shm.Sub, ods []shm.SubOp) bool {
	e := tx.e
	for i := range ods {
		if err := t.slot.cell.mark.Check(ods[i].OpID, uint64(i)); err != nil {
			c := t.sock.cl
			tx.unlist(t)
			tx.giveBack(t)
			e.clients.kill(c, "operation id: %w", err)
			return false
		}
	}
	silent := d.Len == 0 && d.Cookie == 0
	for i := range ods {
		od := &ods[i]
		o := e.pools.ops.Get()
		o.Reset()
		o.ID, o.Token, o.Cookie, o.RemoteOff, o.Len = od.OpID, od.Token, od.Cookie, od.RemoteOff, od.Len
		o.Kind, o.Flags = od.Op, od.Flags
		if err := t.slot.cell.mark.Issue(&o.place, o.ID); err != nil {
			tx.opTrace(t, err)
		}
		t.opv[i] = o
		t.nops++
		tx.countOps(t, 1)
		tx.stepOp(t, o, rdmaop.Event{Type: rdmaop.EvQueue})
		tx.countOp(o)
		silent = silent && od.Flags&abi.FlagSilent != 0
	}
	t.m.Silent = silent
	t.m.Op = &t.opv[0].Op
	if t.nops > 1 {
		t.m.Op2 = &t.opv[1].Op
	}
	for i, o := range t.ops() {
		if errno := tx.checkOp(t, i, &ods[i]); errno != 0 {
			return tx.refuse(t, o, errno)
		}
	}
	return true
}

// checkOp reads and checks the rest of t's operation i: 0, or why it may not
// be posted.
func (tx *sender) checkOp(t *txMsg, i int, d *shm.SubOp) unix.Errno {
	e := tx.e
	o := t.opv[i]
	if errno := e.users.mayOperate(t.sock.cl); errno != 0 {
		return errno
	}
	if t.nops > 1 && o.Kind.Atomic() != (i == 1) {
		return unix.EINVAL // not an RDMA operation, then an atomic
	}
	if t.m.DestCookie != 0 {
		return unix.EINVAL // its key and the cookie would need more room than a header has
	}
	if d.Len > abi.MaxTransfer {
		return unix.EMSGSIZE
	}
	if errno := tx.localSegments(t, o, d); errno != 0 {
		return errno
	}
	if errno := o.Validate(); errno != 0 {
		return errno
	}
	return t.slot.way.check(t, o)
}

// CanPost is asked by the connection when the operations' turn has come: a
// grant may have gone since they were submitted.
func (u *qpHost) CanPost(c *conn.Conn, m *msg.Msg) bool {
	e := u.e
	if pc, ok := m.Owner.(*piece); ok {
		return e.tx.canPostPiece(u.p, pc)
	}
	t := m.Owner.(*txMsg)
	if t.long != nil && t.long.over {
		m.Bad = m.Op
		return false
	}
	p := u.p
	if !p.c.profile().grants {
		e.tx.opsPosted(t)
		return true
	}
	g := p.grants
	if bad, errno := t.meansOwner(p.owner); errno != 0 {
		m.Bad, t.errno = &bad.Op, errno
		return false
	}
	if t.long != nil {
		t.opv[0].Continue(m.Op)
	}
	var bad *rdmaop.Op
	var errno unix.Errno
	if m.Op2 == nil {
		bad, errno = g.Use(t.sock.port, m.Op)
	} else {
		bad, errno = g.Use(t.sock.port, m.Op, m.Op2)
	}
	if errno != 0 {
		m.Bad, t.errno = bad, errno
		return false
	}
	for _, o := range t.ops() {
		if t.carries(o) {
			g.Done(&o.Op) // its target checks the key again
		}
	}
	e.tx.opsPosted(t)
	return true
}

// opsPosted notes that the operations of t are posted, those that were not before.
func (tx *sender) opsPosted(t *txMsg) {
	for _, o := range t.ops() {
		tx.opPosted(t, o)
	}
}

func (tx *sender) opPosted(t *txMsg, o *txOp) {
	if o.State() == rdmaop.StateQueued {
		tx.stepOp(t, o, rdmaop.Event{Type: rdmaop.EvPost})
	}
}

// keepSegs bounds the memory for segments that a record in the pool keeps.
const keepSegs = 64

// kept is the memory of s that a record keeps in its pool.
func kept[T any](s []T) []T {
	if cap(s) > keepSegs {
		return nil
	}
	return s[:0]
}

// freeOp returns o to the pool.
func (tx *sender) freeOp(c *Client, o *txOp) {
	e := tx.e
	e.users.segments(c, -len(o.bufs))
	for i, b := range o.bufs {
		o.bufs[i] = nil
		b.users--
		e.keys.maybeFreeBuffer(b)
	}
	o.Segs, o.bufs = kept(o.Segs), kept(o.bufs)
	o.copied, o.tell, o.at = 0, false, 0
	e.pools.ops.Put(o)
}

// refuse ends a message with an operation o that may not be posted: a status
// for it and its sibling, nothing on the wire, nobody else affected.
func (tx *sender) refuse(t *txMsg, o *txOp, errno unix.Errno) bool {
	t.m.Bad, t.errno = &o.Op, errno
	tx.msgDone(t, msg.OpRefused)
	return false
}

// opTrace tells of a bug of ours, not of a client: it is never fatal.
func (tx *sender) opTrace(t *txMsg, err error) {
	tx.e.cfg.Trace(Place{Local: t.sock.local.addr, Remote: t.slot.addr}, "operation state", err)
}

// stepOp runs the operation's state machine and carries out what it asks for.
func (tx *sender) stepOp(t *txMsg, o *txOp, ev rdmaop.Event) {
	e := tx.e
	eff, err := o.Step(ev)
	if err != nil {
		tx.opTrace(t, err)
		return
	}
	if ev.Type == rdmaop.EvPost {
		o.at = e.now
	}
	if eff&rdmaop.Report != 0 {
		e.watch.opTook(t, o)
		e.clients.report(t, o)
	}
	if eff&rdmaop.RaiseLocal != 0 {
		raised, err := t.slot.cell.mark.Complete(&o.place)
		if err != nil {
			tx.opTrace(t, err)
		}
		if raised {
			e.clients.raise(t.slot.cell)
		}
	}
}

// opsDone maps the end of a message to the end of its operations.
func (tx *sender) opsDone(t *txMsg, o msg.Outcome) {
	e := tx.e
	t.slot.way.retired(t)
	tx.settle(t, o)
	if t.m.Carried() {
		tx.atomicLocal(t)
	}
	for _, op := range t.ops() {
		tx.countOps(t, -1)
		tx.countStatus(op.Status(), o)
		if t.traced != 0 {
			e.traces.tx(t, trace.Settled, op.Status().String())
		}
	}
}

// settle gives the operations of t the statuses that the outcome of its message
// means. It may be called before the message's end, when its outcome is known.
func (tx *sender) settle(t *txMsg, o msg.Outcome) {
	for _, op := range t.ops() {
		tx.stepOp(t, op, t.settlement(op, o))
	}
}

// settlement is what outcome o of t means for its operation op.
func (t *txMsg) settlement(op *txOp, o msg.Outcome) rdmaop.Event {
	failed := o == msg.OpFailed || o == msg.OpRefused
	bad := t.m.Bad == &op.Op || op == t.opv[0] && t.m.Bad == t.m.Op
	if failed && !bad {
		return rdmaop.Event{Type: rdmaop.EvSibling}
	}
	return settlement(&t.m, t.errno, o, op.State())
}

// settlement is what outcome o of m means for its operation, which is in state s. errno is
// why the host refused it.
func settlement(m *msg.Msg, errno unix.Errno, o msg.Outcome, s rdmaop.State) (ev rdmaop.Event) {
	switch {
	case o == msg.OpFailed:
		ev.Type, ev.WC = rdmaop.EvWCError, m.WCStatus
	case o == msg.OpRefused && s != rdmaop.StateQueued: // a later piece: an errno would say that nothing was posted
		ev.Type, ev.WC = rdmaop.EvWCError, verbs.WCRemAccessErr
	case o == msg.OpRefused:
		ev.Type, ev.Errno = rdmaop.EvRefuse, errno
		switch m.WCStatus {
		case verbs.WCLocQPOpErr:
			ev.Errno = unix.EOPNOTSUPP
		case verbs.WCLocLenErr:
			ev.Errno = unix.EMSGSIZE
		}
	case o == msg.Acked:
		ev.Type = rdmaop.EvAck
	case o == msg.Cancelled:
		ev.Type = rdmaop.EvCancel
	case o == msg.NoSock:
		ev.Type = rdmaop.EvNoSocket
	case o == msg.Dropped:
		ev.Type = rdmaop.EvLess
	case o == msg.Lost, o == msg.Unknown:
		ev.Type = rdmaop.EvRestarted
	case o == msg.Withdrawn && s != rdmaop.StateQueued:
		ev.Type = rdmaop.EvLess
	case o == msg.Withdrawn, o == msg.GaveUp:
		ev.Type = rdmaop.EvTimeout
	}
	return ev
}

// OpLocal is the connection's up-call: the local buffers are free again.
func (u *qpHost) OpLocal(_ *conn.Conn, m *msg.Msg) {
	e := u.e
	switch t := m.Owner.(type) {
	case *txMsg:
		e.tx.opsLocal(t)
		t.slot.way.retired(t)
	case *piece:
		u.p.retiredOp(&t.op)
		e.tx.longLocal(t.t)
	}
}

// OpPlaced is the connection's up-call for operations that a kernel peer's
// device has carried out. The message is still to be acked.
func (u *qpHost) OpPlaced(_ *conn.Conn, m *msg.Msg) {
	e := u.e
	t, ok := m.Owner.(*txMsg)
	if !ok {
		return // of a piece MsgDone tells
	}
	if t.traced != 0 {
		e.traces.tx(t, trace.Placed, "")
	}
	e.tx.settle(t, msg.Acked)
}

// opsLocal notes that nothing touches the local buffers of t's operations any
// more.
func (tx *sender) opsLocal(t *txMsg) {
	for _, o := range t.ops() {
		if !t.carries(o) {
			tx.stepOp(t, o, rdmaop.Event{Type: rdmaop.EvLocal})
		}
	}
	if t.traced != 0 {
		tx.e.traces.tx(t, trace.Local, "")
	}
}

// retiredOp ends o's use of its key. The last one on a key that the peer asked back lets it have it.
func (p *peer) retiredOp(o *rdmaop.Op) {
	if p.grants.Done(o) {
		p.c.e.peers.sendRevoked(p, o.RKey())
	}
}

// MsgDone is the connection's up-call for the end of a message.
func (u *qpHost) MsgDone(_ *conn.Conn, m *msg.Msg, o msg.Outcome) {
	e := u.e
	switch t := m.Owner.(type) {
	case *txMsg:
		if o == msg.Returned {
			u.p.takeBack(t)
			return
		}
		e.tx.txDone(t, o)
	case *piece:
		if o == msg.Returned && e.tx.takePieceBack(t) {
			return
		}
		e.tx.pieceDone(u.p, t, o)
	case *ctlMsg:
		e.peers.ctlDone(t, o)
	}
}

// HasWaiting is asked by the connection for a reason to connect. A REVOKE is one while a region waits for
// the answer.
func (u *qpHost) HasWaiting(_ *conn.Conn) bool {
	p := u.p
	return p.paused.N > 0 || p.knocks || p.ctls > 0 && p.allowance.asked.N > 0 && p.remote.attached()
}
