package engine

import "github.com/rdsd/rdsd/conn/msg"

// limit has t given up in ms milliseconds, and not earlier: the turn began before t was submitted, perhaps long before.
func (tx *sender) limit(t *txMsg, ms uint32) {
	e := tx.e
	at := e.present() + int64(ms)*1_000_000
	e.due.limits.Set(&t.limit, t, at)
	e.due.by(at)
}

// giveUps ends the messages whose time is up. What was never posted never will be; what was is not
// sent again, and may have been delivered.
func (tx *sender) giveUps() {
	e := tx.e
	e.chores.Besides(func() bool {
		t := e.due.limits.Due(e.now)
		if t != nil {
			t.slot.way.end(t, msg.Withdrawn)
		}
		return t != nil
	})
	e.due.by(e.due.limits.Next())
}
