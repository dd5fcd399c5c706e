package engine

import "github.com/rdsd/rdsd/conn/msg"

// A connection sends what it was handed in order. So that no socket has to wait
// for another that has much to say, it is handed little ahead of what it can
// post: above turnWindow messages wait in their destinations, and accounts and
// their sockets take turns, by bytes (rota.go). An operation waits there, too, while the connection has
// opsWindow bytes of others under way: a message behind a READ is sent when the
// READ is done, and so is everything behind that.
//
// Small messages are posted as fast as they come, and what is posted is ahead of
// all that follows, here and in the peer's daemon. So while a socket that sends
// few uses a connection, others have no more than shareWindow messages on their
// way to a destination. Without one they may have as many as their send buffer
// holds: they need them for their rate. Operations have a shorter window, too, while others
// send messages.
//
// The order of messages from one socket to another is kept; all that wait are
// the destination's.
const (
	turnWindow  = 128 << 10 // Conn.Queued
	turnQuantum = 16 << 10  // bytes of one account, and of one socket, before it is the next one's turn
	opsWindow   = 1 << 20   // Conn.OpsUnderWay; one operation goes beyond it

	shareWindow = 512         // messages to one destination on a connection that a socket with few uses
	opsShared   = 512 << 10   // opsWindow while another socket sends messages
	shareFor    = 100_000_000 // ns after the last time that it did
	fewIn       = 10_000_000  // ns, in which a socket
	few         = 1000        // sends so many at most
)

// work is what t costs in its turn: for a peer that knows no runs, one as its datagrams.
func (t *txMsg) work(runs bool) int {
	n := len(t.m.Data) + msgCost
	if !runs {
		n += (t.sum.Datagrams - 1) * msgCost
	}
	for _, o := range t.ops() {
		n += int(min(o.Len, opsWindow))
	}
	return n
}

// mayFeed reports whether the connection may be handed more.
func (p *peer) mayFeed() bool { return p.c.Queued() < turnWindow }

// opsWait reports whether operations of s have to wait for others.
func (p *peer) opsWait(s *socket, now int64) bool {
	w := uint64(opsWindow)
	if p.sender != 0 && p.sender != s.inc && now < p.sentAt+shareFor {
		w = opsShared
	}
	return p.c.OpsUnderWay() > w
}

// from notes that s sends n datagrams.
func (p *peer) from(s *socket, n int, now int64) {
	p.sentAt = now
	if now-s.countAt >= fewIn {
		s.countAt, s.counted, s.before = now, 0, s.counted
	}
	s.counted += n
	if p.sender != s.inc {
		if p.sender != 0 && max(s.counted, s.before) <= few {
			p.sharedTo = now + shareFor
		}
		p.sender = s.inc
	}
}

// rationed reports whether sl has as much on its way as it may.
func (p *peer) rationed(sl *slot, now int64) bool {
	return sl.handed >= shareWindow && now < p.sharedTo && !p.c.profile().queues
}

// next is the first destination of k, a socket, that may have something handed over. It is nil if all that it looked at
// have enough (rationed), or if an operation of the first that has not waits for others. looks is how many it may look at.
func (p *peer) next(k *taker, looks *int, now int64) *slot {
	for n := k.slots.N; n > 0 && *looks > 0; n-- {
		sl := k.slots.Head.Of
		switch {
		case sl.q.N > 0 && p.rationed(sl, now):
			k.slots.TurnOver()
			*looks--
		case sl.q.N > 0 && !p.waits(sl) && sl.q.Head.Of.nops > 0 && p.opsWait(sl.sock, now):
			return nil
		default:
			return sl
		}
	}
	return nil
}

// full reports whether t has to wait for its turn.
func (p *peer) full(t *txMsg, now int64) bool {
	return !p.mayFeed() || t.nops > 0 && p.opsWait(t.sock, now) || p.rationed(t.slot, now)
}

// handOver gives t to the connection.
func (tx *sender) handOver(p *peer, t *txMsg) {
	if !p.canName(t) {
		tx.txDone(t, msg.NoSock)
		return
	}
	t.handed = true
	t.slot.handed += t.sum.Datagrams
	p.aim(t)
	p.c.Send(&t.m)
}

// queueUp has sl take turns.
func (p *peer) queueUp(sl *slot) {
	if p.waits(sl) {
		if p.moveOn(sl) {
			return
		}
		if !sl.paused.On() {
			p.paused.Add(&sl.paused, sl)
		}
		if sl.q.N > 0 && !p.strays(sl) {
			p.ask(sl.q.Head.Of)
		}
		return
	}
	p.paused.Del(&sl.paused) // it may wait to be looked at
	p.flows.enter(sl)
}

// takeBack has t wait in its destination again, ahead of what was submitted later: the
// connection has not posted it, and its port is stopped.
func (p *peer) takeBack(t *txMsg) {
	sl := t.slot
	t.handed, t.ungranted = false, t.ungranted || p.moving && t.m.DestCookie != 0
	sl.handed -= t.sum.Datagrams
	if sl.asks == t {
		sl.asks = nil
	}
	if l := t.long; l != nil {
		l.seek(t.opv[0], l.at-l.last.Len)
		l.last.Reset()
		t.m.Op = &t.opv[0].Op
	}
	sl.q.AddFront(&t.inQ, t)
	sl.countQueued(t.sum.Datagrams)
	p.leaveTurn(sl)
	p.queueUp(sl)
}

// lookReleased has destinations take turns again whose ports are stopped no more. A peer may
// release ports as often as it is sent messages, and clients may have any number wait for others.
func (tx *sender) lookReleased(p *peer) {
	n := p.c.Released()
	if n == p.released {
		return
	}
	p.released = n
	p.lookPaused()
}

// lookPaused has each destination that waits see whether it still has to.
func (p *peer) lookPaused() {
	if p.looking.One == nil {
		p.looking.One = p.lookNextPaused
	}
	if p.paused.N > 0 {
		p.paused.Begin()
		p.c.e.chores.Begin(&p.looking)
	}
}

// lookNextPaused does that for the next one; false: there is none.
func (p *peer) lookNextPaused() bool {
	sl := p.paused.Next()
	if sl == nil {
		return false
	}
	p.resume(sl)
	return true
}

// waits reports whether what waits in sl has to wait for the end of messages or pieces that
// its connection has, for its port, which is stopped, for a key, for another connection, or for a GRANT there.
func (p *peer) waits(sl *slot) bool {
	switch {
	case p.strays(sl) || sl.asks != nil || p.c.Stopped(sl.port):
		return true
	case sl.q.N == 0:
		return false
	}
	t := sl.q.Head.Of
	return sl.pieces >= maxPieces && p.c.e.tx.isLong(t) || p.wants(t) != nil || p.behindGrant(t)
}

// leaveQueue takes t out of what waits for its destination. What was behind t may go on.
func (p *peer) leaveQueue(t *txMsg) {
	sl := t.slot
	if sl.unqueue(t); sl.q.N == 0 {
		p.leaveTurn(sl)
	}
	p.resume(sl)
}

// leaveTurn ends that: nothing of sl waits any more.
func (p *peer) leaveTurn(sl *slot) {
	sl.leaveRota()
	p.paused.Del(&sl.paused)
}

// feed hands p's connection what it may have, as accounts, their sockets and the destinations of those take turns, and
// reports whether there was any.
func (tx *sender) feed(p *peer) (fed bool) {
	e := tx.e
	tx.lookReleased(p)
	for p.mayFeed() {
		sl := p.flows.pick(turnQuantum, p, e.now)
		switch {
		case sl == nil:
			return fed
		case sl.q.N == 0: // withdrawn
			p.leaveTurn(sl)
			continue
		case p.waits(sl): // its port has stopped, or it needs a key
			p.leaveTurn(sl)
			p.queueUp(sl)
			continue
		}
		t := sl.q.Head.Of
		sl.spend(t.work(p.c.profile().runs))
		tx.hand(p, sl, t)
		if fed = true; sl.q.N == 0 || p.waits(sl) {
			p.leaveTurn(sl)
			if sl.q.N > 0 {
				p.queueUp(sl)
			}
		}
	}
	return fed
}

// hand gives t, the first that waits in sl, to the connection, or a piece of its operation.
func (tx *sender) hand(p *peer, sl *slot, t *txMsg) {
	if tx.isLong(t) && tx.handPiece(p, t) {
		return
	}
	sl.unqueue(t)
	if !t.ungranted || tx.e.keys.grantCookie(t) {
		tx.handOver(p, t)
	}
}

// eachWaiting calls f for all messages that wait for their turn on p.
func (p *peer) eachWaiting(f func(*msg.Msg)) {
	p.flows.each(func(sl *slot) {
		for t := sl.q.Head; t != nil; t = t.Next {
			f(&t.Of.m)
		}
	})
	for s := p.paused.Head; s != nil; s = s.Next {
		for t := s.Of.q.Head; t != nil; t = t.Next {
			f(&t.Of.m)
		}
	}
}
