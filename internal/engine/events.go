package engine

import (
	"cmp"

	"github.com/rdsd/rdsd/internal/shm"
)

// ringError says what is wrong with the client's indices.
func (c *Client) ringError() error {
	return cmp.Or(c.sub.Err(), c.rret.Err(), c.ev.Err(), c.sret.Err())
}

// report tells the application the status of o, an operation of t or what stands for t, if it
// wants to know.
func (cs *clientTable) report(t *txMsg, o *txOp) {
	c := t.sock.cl
	if c.dead || t.sock.closed || !o.WantsStatus() {
		return
	}
	if c.pendOps.N == 0 && c.room() {
		cs.putStatus(t, o)
		return
	}
	o.tell = true
	if t.inPend.On() {
		return
	}
	t.slot.cell.queued++
	c.pendOps.Add(&t.inPend, t)
	cs.pend(c)
}

func (cs *clientTable) putStatus(t *txMsg, o *txOp) {
	if t.sock.cl.dead || t.sock.closed {
		return
	}
	*t.sock.cl.ev.Reserve().Status() = shm.EventStatus{Kind: shm.EvStatus, Status: o.Status(), Sock: t.sock.handle,
		Cell: t.slot.cell.idx, Errno: uint32(o.Errno()), Token: o.Token, OpID: o.ID}
	cs.news(t.sock.cl)
}

// putStatuses writes the statuses of t that wait; false: no room for all.
func (cs *clientTable) putStatuses(t *txMsg) bool {
	for _, o := range t.ops() {
		if !o.tell {
			continue
		}
		if !t.sock.cl.mayPut() {
			return false
		}
		o.tell = false
		cs.putStatus(t, o)
	}
	return true
}

// note queues the notices of a destination.
func (cs *clientTable) note(sl *slot) {
	if sl.pend.On() || sl.sock.cl.dead || sl.sock.closed {
		return
	}
	if sl.sock.cl.pendNote.N == 0 && cs.putNotices(sl) {
		return
	}
	if sl.closed && sl.sock.cl.crowded() {
		cs.foldNotices(sl)
		return
	}
	sl.sock.cl.pendNote.Add(&sl.pend, sl)
	cs.pend(sl.sock.cl)
}

// crowded reports that more destinations have something to tell than the client
// can have open: of those that are closed no more are kept.
func (c *Client) crowded() bool { return c.pendNote.N > len(c.slots) }

// foldNotices adds what a closed destination has to tell of its messages to what
// its socket tells of several, without an address.
func (cs *clientTable) foldNotices(sl *slot) {
	r := sl.sock.folded
	if r == nil {
		r = &slot{sock: sl.sock, cell: sl.cell, closed: true}
		sl.sock.folded = r
	}
	sl.sock.cl.pendNote.Del(&sl.pend)
	r.lost, r.nosock, r.gaveUp = r.lost+sl.lost, r.nosock+sl.nosock, r.gaveUp+sl.gaveUp
	r.ungranted += sl.ungranted
	sl.reachNews = false
	sl.lost, sl.nosock, sl.gaveUp, sl.down, sl.up, sl.ungranted = 0, 0, 0, 0, 0, 0
	if !r.pend.On() {
		r.cell = sl.cell
		sl.sock.cl.pendNote.Add(&r.pend, r)
		cs.pend(sl.sock.cl)
	}
}

// putNotices writes what sl has to tell; false: no room for all of it.
func (cs *clientTable) putNotices(sl *slot) bool {
	if sl.sock.closed || sl.sock.cl.dead {
		return true
	}
	if !cs.putNotice(sl, shm.NoticeLost, &sl.lost) || !cs.putNotice(sl, shm.NoticeNoSocket, &sl.nosock) {
		return false
	}
	sl.tellGone()
	return cs.putNotice(sl, shm.NoticePeerDown, &sl.down) &&
		cs.putNotice(sl, shm.NoticePeerUp, &sl.up) &&
		cs.putUnreachable(sl) &&
		cs.putNotice(sl, shm.NoticeGaveUp, &sl.gaveUp) &&
		cs.putNotice(sl, shm.NoticeNotGranted, &sl.ungranted) &&
		cs.putWanted(sl, shm.EvCrowded, &sl.crowded, (*shm.WantSlot).TakeCrowded, (*shm.WantSlot).SetCrowded) &&
		cs.putWanted(sl, shm.EvRelief, &sl.relief, (*shm.WantSlot).TakeRelief, (*shm.WantSlot).SetRelief)
}

func (cs *clientTable) putNotice(sl *slot, kind uint8, count *uint64) bool {
	if *count == 0 {
		return true
	}
	if !cs.put(sl, shm.EventNotice{Kind: shm.EvNotice, Notice: kind, Count: *count}) {
		return false
	}
	*count = 0
	return true
}

// put writes n, which is about sl; false: no room.
func (cs *clientTable) put(sl *slot, n shm.EventNotice) bool {
	r := sl.sock.cl.ev.Reserve()
	if r == nil {
		sl.sock.cl.full = true
		return false
	}
	n.Port, n.Sock, n.Slot, n.Cell, n.Addr = sl.port, sl.sock.handle, sl.idx, sl.cell.idx, sl.addr.As16()
	*r.Notice() = n
	cs.news(sl.sock.cl)
	return true
}

// putWanted writes an event about sl's congestion if the client wants it.
func (cs *clientTable) putWanted(sl *slot, kind shm.EvKind, due *bool, take func(*shm.WantSlot) bool, set func(*shm.WantSlot)) bool {
	if !*due {
		return true
	}
	if sl.closed { // the place may be another's
		*due = false
		return true
	}
	w := sl.sock.cl.seg.WantSlot(sl.idx)
	if !take(w) {
		*due = false
		return true
	}
	if !cs.put(sl, shm.EventNotice{Kind: kind}) {
		set(w)
		return false
	}
	*due = false
	return true
}
