package engine

import "github.com/rdsd/rdsd/conn"

// A connection sends what it was handed in order. So that no socket has to wait
// for another that has much to say, it is handed little ahead of what it can
// post: above turnWindow messages wait in their destinations, and the sockets
// take turns, by bytes. An operation waits there, too, while the connection has
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
	turnQuantum = 16 << 10  // bytes of one socket before it is the next one's turn
	opsWindow   = 1 << 20   // Conn.OpsUnderWay; one operation goes beyond it

	shareWindow = 512         // messages to one destination on a connection that a socket with few uses
	opsShared   = 512 << 10   // opsWindow while another socket sends messages
	shareFor    = 100_000_000 // ns after the last time that it did
	fewIn       = 10_000_000  // ns, in which a socket
	few         = 1000        // sends so many at most
)

// work is what t costs in its turn.
func (t *txMsg) work() int {
	n := len(t.m.Data) + msgCost
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

// from notes that s sends a message without an operation.
func (p *peer) from(s *socket, now int64) {
	p.sentAt = now
	if now-s.countAt >= fewIn {
		s.countAt, s.counted, s.before = now, 0, s.counted
	}
	s.counted++
	if p.sender != s.inc {
		if p.sender != 0 && max(s.counted, s.before) <= few {
			p.sharedTo = now + shareFor
		}
		p.sender = s.inc
	}
}

// rationed reports whether sl has as much on its way as it may.
func (p *peer) rationed(sl *slot, now int64) bool {
	return sl.handed >= shareWindow && now < p.sharedTo && !p.c.queues()
}

// next is the first of ce's destinations that may have something handed over,
// nil if all have enough. Few can: it takes shareWindow message ids each.
func (p *peer) next(ce *cell, now int64) *slot {
	for range ce.turn.n {
		sl := ce.turn.head.of
		if sl.q.n == 0 || !p.rationed(sl, now) {
			return sl
		}
		ce.turn.del(&sl.inTurn)
		ce.turn.add(&sl.inTurn, sl)
	}
	return nil
}

// full reports whether t has to wait for its turn.
func (p *peer) full(t *txMsg, now int64) bool {
	return !p.mayFeed() || t.nops > 0 && p.opsWait(t.sock, now) || p.rationed(t.slot, now)
}

// handOver gives t to the connection.
func (e *Engine) handOver(p *peer, t *txMsg) {
	if t.name != 0 && p.c.Kernel() {
		e.msgDone(t, conn.NoSock) // sockets there have no incarnation
		return
	}
	t.handed = true
	t.slot.handed++
	p.aim(t)
	p.c.Send(&t.m)
}

// wait puts t behind what waits for its destination.
func (e *Engine) wait(t *txMsg) {
	sl := t.slot
	sl.q.add(&t.inQ, t)
	e.queueUp(sl)
}

// queueUp has sl take turns.
func (e *Engine) queueUp(sl *slot) {
	ce, p := sl.cell, sl.peer
	if sl.asks != nil {
		if !sl.unmet.on() {
			p.unmet.add(&sl.unmet, sl)
		}
		return
	}
	if !sl.inTurn.on() {
		ce.turn.add(&sl.inTurn, sl)
	}
	if !ce.inFlows.on() {
		ce.credit = 0
		p.flows.add(&ce.inFlows, ce)
	}
}

// leaveTurn ends that: nothing of sl waits any more.
func (sl *slot) leaveTurn() {
	ce := sl.cell
	ce.turn.del(&sl.inTurn)
	if p := sl.peer; p != nil {
		p.unmet.del(&sl.unmet)
		if ce.turn.n == 0 {
			p.flows.del(&ce.inFlows)
		}
	}
}

// feed hands p's connection what it may have, socket by socket, and reports
// whether there was any. A socket gives more than its quantum, if its message
// is that large, and waits longer for its next turn.
func (e *Engine) feed(p *peer) (fed bool) {
	for passed := 0; passed < p.flows.n && p.mayFeed(); {
		ce := p.flows.head.of
		sl := p.next(ce, e.now)
		switch {
		case sl == nil:
			passed++
		case sl.q.n == 0: // withdrawn
			sl.leaveTurn()
			continue
		case sl.q.head.of.nops > 0 && p.opsWait(sl.sock, e.now):
			passed++
		case ce.credit <= 0:
			passed = 0
			ce.credit += turnQuantum
		default:
			passed, fed = 0, true
			t := sl.q.head.of
			ce.credit -= t.work()
			e.hand(p, sl, t)
			if sl.q.n == 0 || sl.asks != nil {
				sl.leaveTurn()
				if sl.q.n > 0 {
					e.queueUp(sl)
				}
				continue
			}
			ce.turn.del(&sl.inTurn)
			ce.turn.add(&sl.inTurn, sl)
			if ce.credit > 0 {
				continue // still its turn
			}
		}
		p.flows.del(&ce.inFlows)
		p.flows.add(&ce.inFlows, ce)
	}
	return fed
}

// hand gives t, the first that waits in sl, to the connection.
func (e *Engine) hand(p *peer, sl *slot, t *txMsg) {
	sl.q.del(&t.inQ)
	if !t.ungranted || e.grantCookie(t) {
		e.handOver(p, t)
	}
}

// eachWaiting calls f for all messages that wait for their turn on p.
func (p *peer) eachWaiting(f func(*conn.Msg)) {
	for n := p.flows.head; n != nil; n = n.next {
		for s := n.of.turn.head; s != nil; s = s.next {
			for t := s.of.q.head; t != nil; t = t.next {
				f(&t.of.m)
			}
		}
	}
	for s := p.unmet.head; s != nil; s = s.next {
		for t := s.of.q.head; t != nil; t = t.next {
			f(&t.of.m)
		}
	}
}

// waiting counts them.
func (p *peer) waiting() (n int) {
	for at := p.flows.head; at != nil; at = at.next {
		for s := at.of.turn.head; s != nil; s = s.next {
			n += s.of.q.n
		}
	}
	for s := p.unmet.head; s != nil; s = s.next {
		n += s.of.q.n
	}
	return n
}
