package engine

import "github.com/rdsd/rdsd/internal/shm"

// cancelDest withdraws what a socket has queued or sent to one destination
// (RDS_CANCEL_SENT_TO).
func (tx *sender) cancelDest(c *Client, d *shm.Sub) (cost int) {
	sl := c.slot(d.Slot, d.Sock)
	if sl == nil {
		return 0
	}
	before := sl.txs.N
	tx.cancel(sl)
	return scanCost * (before - sl.txs.N)
}

// cancel withdraws the messages that were sent to sl before the call. It may take
// several turns of the engine; messages sent meanwhile are not withdrawn.
func (tx *sender) cancel(sl *slot) {
	e := tx.e
	sl.cancelTo = e.peers.tick()
	if !sl.inCancel.On() {
		tx.cancelling.Add(&sl.inCancel, sl)
	}
	e.chores.begin(&tx.cancelling.chore)
}

// withdraw is the chore that withdraws messages of the destinations in cancelling, one
// message of each in turn. It looks at a message that a work request still uses once;
// that message ends when the work request has completed.
func (tx *sender) withdraw() bool {
	e := tx.e
	return e.chores.inSlices(func() bool {
		if tx.cancelling.N == 0 {
			return false
		}
		sl := tx.cancelling.Head.Of
		if sl.txs.N == 0 || sl.txs.Head.Of.nth > sl.cancelTo {
			tx.cancelling.Del(&sl.inCancel)
			e.loop.stopWaiting(sl)
			return true
		}
		t := sl.txs.Head.Of
		sl.txs.Del(&t.inTo)
		tx.withdrawOne(t)
		tx.cancelling.TurnOver()
		return true
	})
}

// withdrawOne withdraws t, wherever it is.
func (tx *sender) withdrawOne(t *txMsg) {
	switch {
	case t.long != nil:
		tx.stopLong(t, cancelled)
	case t.inQ.On():
		tx.e.loop.sameHostDone(t, cancelled)
	default:
		tx.cancelOne(t)
	}
}

// cancelOne withdraws t, if its connection has it.
func (tx *sender) cancelOne(t *txMsg) {
	p := t.slot.peer
	if p == nil {
		return
	}
	if p.c.Cancel(&t.m, cancelled) {
		tx.settle(t, cancelled)
	}
}
