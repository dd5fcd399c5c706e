package daemon

import "github.com/rdsd/rdsd/internal/shm"

// cancelDest withdraws what a socket has queued or sent to one destination
// (RDS_CANCEL_SENT_TO).
func (e *Engine) cancelDest(c *client, d *shm.Sub) (cost int) {
	sl := c.slot(d.Slot, d.Sock)
	if sl == nil {
		return 0
	}
	before := sl.txs.n
	e.cancel(sl)
	return scanCost * (before - sl.txs.n)
}

// cancel withdraws the messages that were sent to sl by now, in turns. What is
// sent from here on is none of them.
func (e *Engine) cancel(sl *slot) {
	sl.cancelTo = e.tick()
	if !sl.inCancel.on() {
		e.cancelling.add(&sl.inCancel, sl)
	}
	e.begin(&e.withdrawing)
}

// withdraw goes on with that, of one destination after the other. What a work request still uses is looked at once,
// and ends when that has completed.
func (e *Engine) withdraw() bool {
	return e.inSlices(func() bool {
		if e.cancelling.n == 0 {
			return false
		}
		sl := e.cancelling.head.of
		if sl.txs.n == 0 || sl.txs.head.of.nth > sl.cancelTo {
			e.cancelling.del(&sl.inCancel)
			e.stopWaiting(sl)
			return true
		}
		t := sl.txs.head.of
		sl.txs.del(&t.inTo)
		e.withdrawOne(t)
		e.cancelling.turnOver()
		return true
	})
}

// withdrawOne withdraws t, wherever it is.
func (e *Engine) withdrawOne(t *txMsg) {
	if t.inQ.on() {
		e.localDone(t, cancelled)
	} else {
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
	e.touch(p)
}
