package engine

import "github.com/rdsd/rdsd/conn"

// limit has t given up in ms milliseconds.
func (e *Engine) limit(t *txMsg, ms uint32) {
	at := e.now + int64(ms)*1_000_000
	e.due.limits.Set(&t.limit, t, at)
	e.due.by(at)
}

// giveUps ends the messages whose time is up.
func (e *Engine) giveUps() {
	e.chores.besides(func() bool {
		t := e.due.limits.Due(e.now)
		if t != nil {
			e.timeUp(t)
		}
		return t != nil
	})
	e.due.by(e.due.limits.Next())
}

// timeUp withdraws t. What was never posted never will be; what was is not sent
// again, and may have been delivered.
func (e *Engine) timeUp(t *txMsg) {
	if t.long != nil {
		e.stopLong(t, t.m.GivenUp())
		return
	}
	if sl := t.slot; t.inQ.On() { // same host, or no room for one more peer
		e.sameHostDone(t, conn.Withdrawn)
		e.stopWaiting(sl)
		return
	}
	p := t.slot.peer
	if o, later := p.c.GiveUp(&t.m); later {
		e.settle(t, o)
	}
}
