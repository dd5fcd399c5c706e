package daemon

import (
	"github.com/rdsd/rdsd/internal/shm"
)

// What the event ring has no room for waits in the client's lists and is
// written when it has: on returned receive ids, and by a timer that looks
// again while anything waits.

func (e *Engine) setStuck(c *client) {
	if !c.isStuck && !c.dead {
		c.isStuck = true
		c.stuckAt = stuckRetryNs
		e.stuck = append(e.stuck, c)
		e.armTimer(e.now + stuckRetryNs)
	}
}

// retryStuck looks again at the event rings that were full. The interval
// doubles up to 64 ms, so a process that never looks costs next to nothing.
func (e *Engine) retryStuck() {
	if len(e.stuck) == 0 {
		return
	}
	list := e.stuck
	keep := list[:0]
	for _, c := range list {
		if c.dead {
			continue
		}
		if e.drainPending(c) {
			c.isStuck = false
			continue
		}
		c.stuckAt = min(2*c.stuckAt, 64*stuckRetryNs)
		e.armTimer(e.now + c.stuckAt)
		keep = append(keep, c)
	}
	clear(list[len(keep):])
	e.stuck = keep
}

// drainPending writes what waits for c's event ring; true: nothing waits now.
func (e *Engine) drainPending(c *client) bool {
	for c.pendOps.n > 0 {
		if c.ev.Free() == 0 {
			return false
		}
		t := c.pendOps.pop()
		e.putStatus(t)
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
	return true
}

// told ends t's stay in pendOps: its status was written, or nobody wants it any
// more.
func (e *Engine) told(t *txMsg) {
	t.queued = false
	if t.done {
		e.freeMsg(t)
	}
}

// note queues the notices of a destination.
func (e *Engine) note(sl *slot) {
	if sl.pend.on() || sl.cl.dead || sl.closed {
		return
	}
	if sl.cl.pendNote.n == 0 && e.putNotices(sl) {
		return
	}
	sl.cl.pendNote.add(&sl.pend, sl)
	e.setStuck(sl.cl)
}

// putNotices writes what sl has to tell; false: no room for all of it.
func (e *Engine) putNotices(sl *slot) bool {
	if sl.closed || sl.cl.dead {
		return true
	}
	return e.putNotice(sl, shm.NoticeLost, &sl.lost) &&
		e.putNotice(sl, shm.NoticeNoSocket, &sl.nosock) &&
		e.putNotice(sl, shm.NoticePeerDown, &sl.down) &&
		e.putNotice(sl, shm.NoticePeerUp, &sl.up) &&
		e.putRelief(sl)
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

// setSlotCongested publishes the congestion of a destination and, when it
// falls, tells the client if it wants to know.
func (e *Engine) setSlotCongested(sl *slot, on bool) {
	t := sl.cl.table.Slot(sl.idx)
	if (t.LoadCongested() != 0) == on {
		return
	}
	t.StoreCongested(b2u(on))
	if !on {
		sl.relief = true
		e.note(sl)
	}
}

func (e *Engine) putRelief(sl *slot) bool {
	if !sl.relief {
		return true
	}
	w := sl.cl.seg.WantSlot(sl.idx)
	if !w.TakeRelief() {
		sl.relief = false
		return true
	}
	r := sl.cl.ev.Reserve()
	if r == nil {
		w.SetRelief()
		return false
	}
	sl.relief = false
	*r.Notice() = shm.EventNotice{Kind: shm.EvRelief, Port: sl.port, Sock: sl.sock.idx, Slot: sl.idx, Cell: sl.cell.idx,
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
	if id == 0 || int64(ce.mark.HWM()-id) < 0 {
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
