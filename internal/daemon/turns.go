package daemon

import "github.com/rdsd/rdsd/conn"

// A connection sends what it was handed in order. So that no socket has to wait
// for another that has much to say, it is handed little ahead of what it can
// post: above turnWindow messages wait in their destinations, and the sockets
// take turns, by bytes. An operation waits there, too, while the connection has
// opsWindow bytes of others under way: a message behind a READ is sent when the
// READ is done, and so is everything behind that.
//
// The order of messages from one socket to another is kept; all that wait are
// the destination's.
const (
	turnWindow  = 128 << 10 // Conn.Queued
	turnQuantum = 16 << 10  // bytes of one socket before it is the next one's turn
	opsWindow   = 1 << 20   // Conn.OpsUnderWay; one operation goes beyond it
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
// RDS/TCP has queues of its own.
func (p *peer) mayFeed() bool { return p.rc == nil || p.rc.Queued() < turnWindow }

// opsWait reports whether operations have to wait for others.
func (p *peer) opsWait() bool { return p.rc != nil && p.rc.OpsUnderWay() > opsWindow }

// full reports whether t has to wait for its turn.
func (p *peer) full(t *txMsg) bool {
	return !p.mayFeed() || t.nops > 0 && p.opsWait()
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
	if ce.turn.n == 0 && sl.peer != nil {
		sl.peer.flows.del(&ce.inFlows)
	}
}

// feed hands p's connection what it may have, socket by socket, and reports
// whether there was any. A socket gives more than its quantum, if its message
// is that large, and waits longer for its next turn.
func (e *Engine) feed(p *peer) (fed bool) {
	for passed := 0; passed < p.flows.n && p.mayFeed(); {
		ce := p.flows.head.of
		sl := ce.turn.head.of
		switch {
		case sl.q.n == 0: // withdrawn
			sl.leaveTurn()
			continue
		case sl.q.head.of.nops > 0 && p.opsWait():
			passed++
		case ce.credit <= 0:
			passed = 0
			ce.credit += turnQuantum
		default:
			passed, fed = 0, true
			t := sl.q.head.of
			ce.credit -= t.work()
			e.hand(p, sl, t)
			if sl.q.n == 0 {
				sl.leaveTurn()
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
	p.c.Send(&t.m)
}

// feedAll hands over all that waits in sl, which is being closed.
func (e *Engine) feedAll(sl *slot) {
	for sl.q.n > 0 {
		e.hand(sl.peer, sl, sl.q.head.of)
	}
	sl.leaveTurn()
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
}

// waiting counts them.
func (p *peer) waiting() (n int) {
	p.eachWaiting(func(*conn.Msg) { n++ })
	return n
}
