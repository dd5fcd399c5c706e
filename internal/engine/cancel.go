package engine

import (
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
)

// cancelDest withdraws what a socket has queued or sent to one destination
// (RDS_CANCEL_SENT_TO).
func (tx *sender) cancelDest(c *Client, d *shm.Sub) (cost int) {
	if d.Slot == shm.NoSlot {
		tx.withdraw(c, d)
		return scanCost
	}
	sl := c.slot(d.Slot, d.Sock)
	if sl == nil {
		return 0
	}
	before := sl.txs.N
	tx.cancel(sl)
	return scanCost * (before - sl.txs.N)
}

// withdraw ends one message of a socket as its limit does, if it has not gone out. A message that has
// ended is no error: its process may not know yet.
func (tx *sender) withdraw(c *Client, d *shm.Sub) {
	if d.MsgID >= uint32(len(c.msgs)) {
		tx.e.clients.kill(c, "message id %d to withdraw is out of range", d.MsgID)
		return
	}
	if t := c.msgs[d.MsgID]; t != nil && t.sock.handle == d.Sock && !t.done() && t.unsent() {
		t.slot.way.end(t, msg.Withdrawn)
	}
}

// unsent reports whether t has not gone out, nor a piece of its operation.
func (t *txMsg) unsent() bool {
	for _, o := range t.ops() {
		if o.State() != rdmaop.StateQueued {
			return false
		}
	}
	return t.m.GivenUp() == msg.Withdrawn
}

// cancel withdraws the messages that were sent to sl before the call. It may take
// several turns of the engine; messages sent meanwhile are not withdrawn.
func (tx *sender) cancel(sl *slot) {
	e := tx.e
	sl.cancelTo = e.peers.tick()
	if !sl.inCancel.On() {
		tx.cancelling.Add(&sl.inCancel, sl)
	}
	e.chores.Begin(&tx.cancelling.Chore)
}

// cancelClosed withdraws what was sent to sl, if it is closed.
func (tx *sender) cancelClosed(sl *slot) {
	if sl.closed && sl.txs.N > 0 {
		tx.cancel(sl)
	}
}

// withdrawNext is the chore that withdraws messages of the destinations in cancelling, one
// message of each in turn. It looks at a message that a work request still uses once;
// that message ends when the work request has completed.
func (tx *sender) withdrawNext() bool {
	if tx.cancelling.N == 0 {
		return false
	}
	sl := tx.cancelling.Head.Of
	if sl.txs.N == 0 || sl.txs.Head.Of.nth > sl.cancelTo {
		tx.cancelling.Del(&sl.inCancel)
		return true
	}
	t := sl.txs.Head.Of
	sl.txs.Del(&t.inTo)
	sl.way.end(t, msg.Cancelled)
	tx.cancelling.TurnOver()
	return true
}
