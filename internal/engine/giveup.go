package engine

import (
	"github.com/rdsd/rdsd/conn/msg"
)

// limit has t given up in ms milliseconds.
func (tx *sender) limit(t *txMsg, ms uint32) {
	e := tx.e
	at := e.now + int64(ms)*1_000_000
	e.due.limits.Set(&t.limit, t, at)
	e.due.by(at)
}

// giveUps ends the messages whose time is up.
func (tx *sender) giveUps() {
	e := tx.e
	e.chores.besides(func() bool {
		t := e.due.limits.Due(e.now)
		if t != nil {
			tx.timeUp(t)
		}
		return t != nil
	})
	e.due.by(e.due.limits.Next())
}

// timeUp withdraws t. What was never posted never will be; what was is not sent
// again, and may have been delivered.
func (tx *sender) timeUp(t *txMsg) {
	e := tx.e
	if t.long != nil {
		tx.stopLong(t, t.m.GivenUp())
		return
	}
	if sl := t.slot; t.inQ.On() { // same host, or no room for one more peer
		e.loop.sameHostDone(t, msg.Withdrawn)
		e.loop.stopWaiting(sl)
		return
	}
	p := t.slot.peer
	if o, later := p.c.GiveUp(&t.m); later {
		tx.settle(t, o)
	}
}
