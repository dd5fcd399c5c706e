package engine

import (
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// An operation of more than Config.MaxPiece bytes goes to a peer in pieces, so that the peer's
// other sockets wait for one piece and not for all of them. On the same host it is copied in
// slices anyway.
//
// The message stays at the head of its destination's queue. In each turn of the destination
// the connection is handed one piece, as a silent message of its own. With the last piece it
// is handed the message itself. A connection posts in order, so the message is posted behind
// all pieces, and a connection that lost one of them posts nothing that was posted behind it
// again. So if a piece has failed, the message is not delivered: it was posted behind the
// piece and failed with it, or it has not been posted, and CanPost refuses it.
//
// The application sees one operation. Its status is that of the first piece that is known to
// have failed, else that of the message. It is locally complete when all pieces are. The
// first piece begins the message: from then on no other message can use a key for one use.

// maxPieces is how many pieces to one destination a connection has. It keeps those that its
// peer has not acknowledged: a client must not fill the daemon's memory with them.
const maxPieces = 8

// long is the cutting of an operation, the first of its message. Pooled.
type long struct {
	pieces  lists.List[piece] // that the connection has, without the last one
	at      uint64            // bytes of the operation that were handed over
	seg     int               // the next piece begins in this segment,
	off     uint32            // at this byte of it
	last    rdmaop.Op         // the last piece, which the message carries
	over    bool              // nothing of it is posted any more
	ended   bool              // the message has ended with outcome, and waits for pieces
	outcome msg.Outcome
	held    bool              // stopLong goes through the pieces
	stop    lists.Link[txMsg] // sender.broken
}

// piece is a part of an operation on its way to the peer. Pooled.
type piece struct {
	handover.InState
	m     msg.Msg
	op    rdmaop.Op
	t     *txMsg
	errno unix.Errno // why it was refused
	in    lists.Link[piece]
}

// isLong reports whether t's operation goes in pieces: it has begun to, perhaps in a daemon
// with a smaller MaxPiece, or it is too long for one piece. An atomic never does.
func (tx *sender) isLong(t *txMsg) bool {
	return t.long != nil || t.nops > 0 && t.opv[0].Len > uint64(tx.e.cfg.MaxPiece) && !t.opv[0].Kind.Atomic()
}

// handPiece gives p's connection the next piece of t, which waits at the head of its
// destination. It returns false if t itself is next, with the last piece.
func (tx *sender) handPiece(p *peer, t *txMsg) bool {
	e := tx.e
	if !p.canName(t) {
		return false // handOver ends it
	}
	l, o := t.long, t.opv[0]
	switch {
	case l == nil:
		l = e.pools.longs.Get()
		t.long = l
	case l.over: // and stopNext was not there yet
		tx.stopLong(p, t, msg.Dropped)
		return true
	}
	if o.Len-l.at <= uint64(e.cfg.MaxPiece) {
		l.cut(o, &l.last, o.Len-l.at)
		t.m.Op = &l.last
		return false
	}
	p.means(t)
	pc := tx.newPiece(t, uint64(e.cfg.MaxPiece), t.m.DstInc)
	p.c.Send(&pc.m)
	return true
}

// newPiece cuts the next n bytes off the operation of t, for the socket of incarnation dst.
func (tx *sender) newPiece(t *txMsg, n uint64, dst uint32) *piece {
	pc := tx.e.pools.pieces.Get()
	t.long.cut(t.opv[0], &pc.op, n)
	pc.t = t
	pc.m = msg.Msg{Owner: pc, SPort: t.m.SPort, DPort: t.m.DPort, SrcInc: t.m.SrcInc, DstInc: dst, Op: &pc.op, Silent: true, At: t.m.At}
	t.long.pieces.Add(&pc.in, pc)
	t.slot.pieces++
	return pc
}

// cut makes to the next n bytes of o.
func (l *long) cut(o *txOp, to *rdmaop.Op, n uint64) {
	to.Reset()
	to.Kind, to.Cookie, to.RemoteOff, to.Len, to.ID = o.Kind, o.Cookie, o.RemoteOff+l.at, n, o.ID
	l.at += n
	for n > 0 {
		s := o.Segs[l.seg]
		s.Addr, s.Len = s.Addr+uint64(l.off), s.Len-l.off
		if uint64(s.Len) > n {
			s.Len = uint32(n)
			l.off += s.Len
		} else {
			l.seg, l.off = l.seg+1, 0
		}
		to.Segs = append(to.Segs, s)
		n -= uint64(s.Len)
	}
}

// canPostPiece is CanPost of a piece.
func (tx *sender) canPostPiece(p *peer, pc *piece) bool {
	t := pc.t
	if t.long.over {
		pc.m.Bad = &pc.op
		return false
	}
	if p.c.profile().grants {
		if pc.m.Bad, pc.errno = t.usePiece(p, &pc.op); pc.errno != 0 {
			return false
		}
	}
	tx.opPosted(t, t.opv[0])
	return true
}

// usePiece uses p's keys for o, a piece of t. With the first piece the message of t begins:
// its keys for one use are its own from then on. bad is the operation of t that may not run.
func (t *txMsg) usePiece(p *peer, o *rdmaop.Op) (bad *rdmaop.Op, errno unix.Errno) {
	whole := &t.opv[0].Op
	other, errno := t.meansOwner(p.owner)
	switch {
	case errno != 0 && !whole.Begun():
		return &other.Op, errno
	case errno != 0: // an errno of the other operation would say that nothing was posted
		return whole, errno
	case whole.Begun():
	case t.nops > 1:
		bad, errno = p.grants.Begin(t.sock.port, whole, &t.opv[1].Op)
	default:
		bad, errno = p.grants.Begin(t.sock.port, whole)
	}
	if errno != 0 {
		return bad, errno
	}
	whole.Continue(o)
	_, errno = p.grants.Use(t.sock.port, o)
	return whole, errno
}

// pieceDone is the connection's up-call for the end of a piece.
func (tx *sender) pieceDone(p *peer, pc *piece, o msg.Outcome) {
	t := pc.t
	l := t.long
	p.retiredOp(&pc.op)
	if o != msg.Acked && !l.over {
		tx.pieceFailed(t, pc, o)
	}
	tx.freePiece(pc)
	p.resume(t.slot)
	if l.ended && !l.held && l.pieces.N == 0 {
		tx.longEnded(t)
	}
}

// takePieceBack has the operation go on with pc again: the connection has not posted it, and
// its port is stopped. It returns false if the operation does not go on.
func (tx *sender) takePieceBack(pc *piece) bool {
	t := pc.t
	if t.long.over {
		return false
	}
	t.long.seek(t.opv[0], pc.op.RemoteOff-t.opv[0].RemoteOff)
	tx.freePiece(pc)
	if t.long.at == 0 {
		tx.freeLong(t) // it has not begun
	}
	return true
}

// freePiece returns pc, which the connection has not any more, to the pool.
func (tx *sender) freePiece(pc *piece) {
	t := pc.t
	t.long.pieces.Del(&pc.in)
	t.slot.pieces--
	*pc = piece{op: rdmaop.Op{Segs: kept(pc.op.Segs)}}
	tx.e.pools.pieces.Put(pc)
}

// pieceFailed gives t's operations the statuses that the failure of its piece pc means, at
// once. The rest is withdrawn outside the up-call.
func (tx *sender) pieceFailed(t *txMsg, pc *piece, o msg.Outcome) {
	t.long.over = true
	op, other := t.opv[0], t.opv[1]
	if other != nil && pc.m.Bad == &other.Op {
		op, other = other, op
	}
	ev := settlement(&pc.m, pc.errno, o, op.State())
	if ev.Type == rdmaop.EvRestarted && op.State() != rdmaop.StateQueued && !t.m.EverSent() {
		ev.Type = rdmaop.EvLess // whatever became of the piece: the message was never sent
	}
	tx.stepOp(t, op, ev)
	if other != nil {
		sibling := rdmaop.Event{Type: rdmaop.EvSibling}
		if ev.Type == rdmaop.EvRestarted {
			sibling = ev // the message may have been delivered, and its atomic may have run
		}
		tx.stepOp(t, other, sibling)
	}
	tx.broken.Add(&t.long.stop, t)
	tx.e.chores.Later(&tx.broken.Chore)
}

// stopNext is the chore that withdraws what is left of operations that have failed.
func (tx *sender) stopNext() bool {
	if tx.broken.N == 0 {
		return false
	}
	t := tx.broken.Head.Of
	t.slot.way.end(t, msg.Dropped)
	return true
}

// stopLong withdraws t, of whose operation a piece was handed over, with outcome o. t ends
// when no work request uses it or a piece of it, and if nothing of it may come any more, when
// no piece is on its way. A cancel ends that wait.
func (tx *sender) stopLong(p *peer, t *txMsg, o msg.Outcome) {
	l := t.long
	tx.broken.Del(&l.stop)
	if l.ended && (o != msg.Cancelled || !awaitsPieces(l.outcome)) {
		return
	}
	if t.inQ.On() {
		p.leaveQueue(t)
		l.ended = true
	}
	l.over, l.held, l.outcome = true, true, o
	for at := l.pieces.Head; at != nil; {
		next := at.Next
		if !awaitsPieces(o) || at.Of.m.GivenUp() == msg.Withdrawn {
			p.c.Cancel(&at.Of.m, msg.Cancelled)
		}
		at = next
	}
	l.held = false
	switch {
	case !l.ended:
		if p.c.Cancel(&t.m, o) {
			tx.longDecided(t, o)
		}
	case l.pieces.N == 0:
		tx.longEnded(t)
	default:
		tx.longDecided(t, o)
	}
}

// awaitsPieces reports whether outcome o of a message says that nothing of it will come. So
// it is told when no piece is on its way to the target any more.
func awaitsPieces(o msg.Outcome) bool {
	return o == msg.OpRefused || o == msg.Withdrawn
}

// longDecided tells outcome o of t, whose connection may have pieces of it, if it may be told.
func (tx *sender) longDecided(t *txMsg, o msg.Outcome) {
	if t.long.pieces.N == 0 || !awaitsPieces(o) {
		tx.settle(t, o)
	}
	tx.longLocal(t)
}

// longLocal raises the mark past the operation of t, if t has ended and no work request uses
// a piece.
func (tx *sender) longLocal(t *txMsg) {
	l, o := t.long, t.opv[0]
	if !l.ended || l.held { // held: its status goes ahead of the mark
		return
	}
	for at := l.pieces.Head; at != nil; at = at.Next {
		if !at.Of.m.OpLocal() {
			return
		}
	}
	if s := o.State(); s == rdmaop.StatePosted || s == rdmaop.StateTold {
		tx.stepOp(t, o, rdmaop.Event{Type: rdmaop.EvLocal})
	}
}

// txDone ends t, or has it wait for its pieces.
func (tx *sender) txDone(t *txMsg, o msg.Outcome) {
	l := t.long
	if l == nil {
		tx.msgDone(t, o)
		return
	}
	l.over, l.ended, l.outcome = true, true, o
	if l.pieces.N == 0 && !l.held {
		tx.longEnded(t)
	} else {
		tx.longDecided(t, o)
	}
}

// longEnded ends t, of which the connection has nothing any more.
func (tx *sender) longEnded(t *txMsg) {
	l := t.long
	tx.broken.Del(&l.stop)
	tx.settle(t, l.outcome)
	if o := t.opv[0]; o.State() == rdmaop.StateTold { // else OpLocal came, or nothing was posted
		tx.stepOp(t, o, rdmaop.Event{Type: rdmaop.EvLocal})
	}
	o := l.outcome
	t.slot.way.retired(t) // the last piece, which goes now
	tx.freeLong(t)
	tx.msgDone(t, o)
}

// freeLong returns the cutting of t to the pool. t carries the whole operation again. A message
// that is done has no cutting, even if it stays until its client has room for the statuses.
func (tx *sender) freeLong(t *txMsg) {
	l, whole := t.long, &t.opv[0].Op
	if t.m.Bad == t.m.Op && t.m.Bad != nil {
		t.m.Bad = whole
	}
	t.m.Op = whole
	*l = long{last: rdmaop.Op{Segs: kept(l.last.Segs)}}
	t.long = nil
	tx.e.pools.longs.Put(l)
}
