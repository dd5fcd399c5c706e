package engine

import "github.com/rdsd/rdsd/internal/shm"

// cancelDest withdraws what a socket has queued or sent to one destination
// (RDS_CANCEL_SENT_TO).
func (e *Engine) cancelDest(c *Client, d *shm.Sub) (cost int) {
	sl := c.slot(d.Slot, d.Sock)
	if sl == nil {
		return 0
	}
	before := sl.txs.N
	e.cancel(sl)
	return scanCost * (before - sl.txs.N)
}

// cancel withdraws the messages that were sent to sl before the call. It may take
// several turns of the engine; messages sent meanwhile are not withdrawn.
func (e *Engine) cancel(sl *slot) {
	sl.cancelTo = e.tick()
	if !sl.inCancel.On() {
		e.cancelling.Add(&sl.inCancel, sl)
	}
	e.chores.begin(&e.cancelling.chore)
}

// withdraw is the chore that withdraws messages of the destinations in cancelling, one
// message of each in turn. It looks at a message that a work request still uses once;
// that message ends when the work request has completed.
func (e *Engine) withdraw() bool {
	return e.chores.inSlices(func() bool {
		if e.cancelling.N == 0 {
			return false
		}
		sl := e.cancelling.Head.Of
		if sl.txs.N == 0 || sl.txs.Head.Of.nth > sl.cancelTo {
			e.cancelling.Del(&sl.inCancel)
			e.stopWaiting(sl)
			return true
		}
		t := sl.txs.Head.Of
		sl.txs.Del(&t.inTo)
		e.withdrawOne(t)
		e.cancelling.TurnOver()
		return true
	})
}

// withdrawOne withdraws t, wherever it is.
func (e *Engine) withdrawOne(t *txMsg) {
	switch {
	case t.long != nil:
		e.stopLong(t, cancelled)
	case t.inQ.On():
		e.sameHostDone(t, cancelled)
	default:
		e.cancelOne(t)
	}
}

// cancelOne withdraws t, if its connection has it.
func (e *Engine) cancelOne(t *txMsg) {
	p := t.slot.peer
	if p == nil {
		return
	}
	if p.c.Cancel(&t.m, cancelled) {
		e.settle(t, cancelled)
	}
}
