package daemon

import (
	"cmp"

	"github.com/rdsd/rdsd/internal/shm"
)

// What the event ring has no room for waits in the client's lists and is
// written when it has: on returned receive ids, and by a timer that looks
// again while anything waits.

func (e *Engine) setStuck(c *client) {
	if !c.inStuck.on() && !c.dead {
		e.stuck.add(&c.inStuck, c)
		c.retryIn = stuckRetryNs
		c.retryAt = e.now + stuckRetryNs
		e.armTimer(c.retryAt)
	}
}

// retryStuck looks again at the event rings that were full. The interval
// doubles up to 64 ms, so a process that never looks costs next to nothing.
func (e *Engine) retryStuck() {
	var next *link[client]
	for n := e.stuck.head; n != nil; n = next {
		next = n.next
		c := n.of
		if e.now < c.retryAt {
			e.armTimer(c.retryAt)
			continue
		}
		if err := c.ringError(); err != nil {
			e.kill(c, "%w", err)
			continue
		}
		if e.drainPending(c) {
			e.stuck.del(n)
			continue
		}
		c.retryIn = min(2*c.retryIn, 64*stuckRetryNs)
		c.retryAt = e.now + c.retryIn
		e.armTimer(c.retryAt)
	}
}

// ringError says what is wrong with the client's indices.
func (c *client) ringError() error { return cmp.Or(c.rret.Err(), c.ev.Err(), c.sret.Err()) }

// drainPending writes what waits for c's event ring; true: nothing waits now.
func (e *Engine) drainPending(c *client) bool {
	for c.pendOps.n > 0 {
		t := c.pendOps.head
		if !e.putStatuses(t) {
			return false
		}
		c.pendOps.pop()
		e.told(t)
	}
	for c.pendCells.n > 0 {
		if c.ev.Free() == 0 {
			return false
		}
		ce := c.pendCells.head.of
		c.pendCells.del(&ce.pend)
		if ce.live() {
			e.checkArmed(c, ce)
		}
	}
	for c.pendNote.n > 0 {
		sl := c.pendNote.head.of
		if !e.putNotices(sl) {
			return false
		}
		c.pendNote.del(&sl.pend)
	}
	for c.pendSocks.n > 0 {
		s := c.pendSocks.head.of
		if !e.drainOver(s) {
			return false
		}
		c.pendSocks.del(&s.pend)
	}
	// Room at a socket may be news to this client's senders.
	return c.pendOps.n+c.pendCells.n+c.pendNote.n+c.pendSocks.n == 0
}

// putStatuses writes the statuses of t that wait; false: no room for all.
func (e *Engine) putStatuses(t *txMsg) bool {
	for _, o := range t.ops() {
		if !o.tell {
			continue
		}
		if t.cl.ev.Free() == 0 {
			return false
		}
		o.tell = false
		e.putStatus(t, o)
	}
	return true
}

// told ends t's stay in pendOps: its statuses were written, or nobody wants them
// any more.
func (e *Engine) told(t *txMsg) {
	t.queued = false
	if t.done {
		e.giveBack(t)
	}
}

// note queues the notices of a destination.
func (e *Engine) note(sl *slot) {
	if sl.pend.on() || sl.cl.dead || sl.sock.closed {
		return
	}
	if sl.cl.pendNote.n == 0 && e.putNotices(sl) {
		return
	}
	if sl.closed && sl.cl.crowded() {
		e.foldNotices(sl)
		return
	}
	sl.cl.pendNote.add(&sl.pend, sl)
	e.setStuck(sl.cl)
}

// crowded reports that more destinations have something to tell than the client
// can have open: of those that are closed no more are kept.
func (c *client) crowded() bool { return c.pendNote.n > len(c.slots) }

// foldNotices adds what a closed destination has to tell of its messages to what
// its socket tells of several, without an address.
func (e *Engine) foldNotices(sl *slot) {
	r := sl.sock.folded
	if r == nil {
		r = &slot{cl: sl.cl, sock: sl.sock, cell: sl.cell, closed: true}
		sl.sock.folded = r
	}
	sl.cl.pendNote.del(&sl.pend)
	r.lost, r.nosock, r.gaveUp = r.lost+sl.lost, r.nosock+sl.nosock, r.gaveUp+sl.gaveUp
	sl.lost, sl.nosock, sl.gaveUp, sl.down, sl.up = 0, 0, 0, 0, 0
	if !r.pend.on() {
		r.cell = sl.cell
		sl.cl.pendNote.add(&r.pend, r)
		e.setStuck(sl.cl)
	}
}

// putNotices writes what sl has to tell; false: no room for all of it.
func (e *Engine) putNotices(sl *slot) bool {
	if sl.sock.closed || sl.cl.dead {
		return true
	}
	return e.putNotice(sl, shm.NoticeLost, &sl.lost) &&
		e.putNotice(sl, shm.NoticeNoSocket, &sl.nosock) &&
		e.putNotice(sl, shm.NoticePeerDown, &sl.down) &&
		e.putNotice(sl, shm.NoticePeerUp, &sl.up) &&
		e.putNotice(sl, shm.NoticeGaveUp, &sl.gaveUp) &&
		e.putWanted(sl, shm.EvCrowded, &sl.crowded, (*shm.WantSlot).TakeCrowded, (*shm.WantSlot).SetCrowded) &&
		e.putWanted(sl, shm.EvRelief, &sl.relief, (*shm.WantSlot).TakeRelief, (*shm.WantSlot).SetRelief)
}

func (e *Engine) putNotice(sl *slot, kind uint8, count *uint64) bool {
	if *count == 0 {
		return true
	}
	r := sl.cl.ev.Reserve()
	if r == nil {
		return false
	}
	*r.Notice() = shm.EventNotice{Kind: shm.EvNotice, Notice: kind, Port: sl.port, Sock: sl.sock.idx, Slot: sl.idx,
		Cell: sl.cell.idx, Count: *count, Addr: sl.addr.As16()}
	*count = 0
	e.news(sl.cl)
	return true
}

// putWanted writes an event about sl's congestion if the client wants it.
func (e *Engine) putWanted(sl *slot, kind shm.EvKind, due *bool, take func(*shm.WantSlot) bool, set func(*shm.WantSlot)) bool {
	if !*due {
		return true
	}
	if sl.closed { // the place may be another's
		*due = false
		return true
	}
	w := sl.cl.seg.WantSlot(sl.idx)
	if !take(w) {
		*due = false
		return true
	}
	r := sl.cl.ev.Reserve()
	if r == nil {
		set(w)
		return false
	}
	*due = false
	*r.Notice() = shm.EventNotice{Kind: kind, Port: sl.port, Sock: sl.sock.idx, Slot: sl.idx, Cell: sl.cell.idx,
		Addr: sl.addr.As16()}
	e.news(sl.cl)
	return true
}

// raise notes that a barrier's mark rose. It is published at the end of the
// turn, behind the statuses of this turn: who sees the mark finds them.
func (e *Engine) raise(ce *cell) {
	if !ce.raised {
		ce.raised = true
		c := ce.sock.cl
		c.raised = append(c.raised, ce)
		e.news(c)
	}
}

// publishMarks publishes the marks that rose and tells waiters that armed them.
func (e *Engine) publishMarks(c *client) {
	for i, ce := range c.raised {
		c.raised[i] = nil
		ce.raised = false
		if ce.live() {
			c.table.Cell(ce.idx).StoreHWM(ce.mark.HWM())
			e.checkArmed(c, ce)
		}
	}
	c.raised = c.raised[:0]
}

func (e *Engine) checkArmed(c *client, ce *cell) {
	w := c.seg.WantCell(ce.idx)
	id := w.LoadArmed()
	if id == 0 || !ce.mark.Reached(id) {
		return
	}
	r := c.ev.Reserve()
	if r == nil {
		if !ce.pend.on() {
			c.pendCells.add(&ce.pend, ce)
			e.setStuck(c)
		}
		return
	}
	// A client that arms a higher id at this moment must not lose it.
	w.CompareAndClearArmed(id)
	*r.Notice() = shm.EventNotice{Kind: shm.EvBarrier, Sock: ce.sock.idx, Cell: ce.idx, Addr: ce.addr.As16(), Count: ce.mark.HWM()}
	e.news(c)
}
