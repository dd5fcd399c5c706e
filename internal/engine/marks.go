package engine

import (
	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/internal/shm"
)

// raise notes that the mark of ce rose. It is published at the end of the turn,
// behind the statuses of this turn, so that a client that sees the mark also
// finds the statuses.
func (cs *clientTable) raise(ce *cell) {
	if !ce.raised {
		ce.raised = true
		c := ce.sock.cl
		c.raised = append(c.raised, ce)
		cs.news(c)
	}
}

// statusTold counts that a message of ce left the statuses that wait for room,
// and has the mark published that waited for it.
func (cs *clientTable) statusTold(ce *cell) {
	ce.told++
	rose := ce.shown != ce.mark.HWM() // perhaps after publishMark chose the next one
	if ce.told == ce.nextAt && rose && ce.live() {
		cs.raise(ce)
	}
}

// publishMarks publishes the marks that rose and tells waiters that armed them.
func (cs *clientTable) publishMarks(c *Client) {
	for i, ce := range c.raised {
		c.raised[i] = nil
		ce.raised = false
		if ce.live() {
			cs.publishMark(c, ce)
		}
	}
	c.raised = c.raised[:0]
}

// publishMark publishes how far the mark of ce rose. A mark must not pass an
// operation whose status is known and waits for room in the event ring. So
// while statuses of ce wait, the mark as it is now becomes the next one to be
// published, when those that wait now have been written. What rises and settles
// in the meantime is for the one after that, and what other cells have to tell
// is of no concern: no mark waits longer than two times the statuses of its own
// cell need.
func (cs *clientTable) publishMark(c *Client, ce *cell) {
	if int64(ce.told-ce.nextAt) < 0 {
		return // statusTold comes back here
	}
	ce.shown = ce.next
	ce.next, ce.nextAt = ce.mark.HWM(), ce.queued
	if ce.told == ce.queued {
		ce.shown = ce.next
	}
	c.table.Cell(ce.idx).StoreHWM(ce.shown)
	cs.checkArmed(c, ce)
}

// checkArmed tells the client that the id which it armed was reached.
func (cs *clientTable) checkArmed(c *Client, ce *cell) {
	w := c.seg.WantCell(ce.idx)
	id := w.LoadArmed()
	if id == 0 || !barrier.Reached(ce.shown, id) {
		return
	}
	r := c.ev.Reserve()
	if r == nil {
		if !ce.pend.On() {
			c.pendCells.Add(&ce.pend, ce)
			cs.pend(c)
		}
		return
	}
	// A client that arms a higher id at this moment must not lose it.
	w.CompareAndClearArmed(id)
	*r.Notice() = shm.EventNotice{Kind: shm.EvBarrier, Sock: ce.sock.handle, Cell: ce.idx, Addr: ce.addr.As16(), Count: ce.shown}
	cs.news(c)
}
