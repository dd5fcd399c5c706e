package engine

import "github.com/rdsd/rdsd/internal/lists"

// Events that do not fit into a client's event ring wait in the client's lists. While the
// client is active, the engine looks for room in each turn. When it parks the client, it
// asks to be rung for room (shm.AsleepForRoom). So a client that reads nothing costs the
// turns nothing, and a client that reads is served at once.

const (
	writeTurn = subBudget // entries written for one client in a turn, and payload in units of writeUnit
	writeEach = 64        // of these for one kind before it is the next one's turn
	writeSock = 16        // of these for one socket before it is the next one's turn
	writeUnit = subBytes / subBudget
)

// pending is the events of a process that wait for room. None is lost.
type pending struct {
	pendOps   lists.List[txMsg]  // messages that have statuses to be told
	pendNote  lists.List[slot]   // slots with notices
	pendCells lists.List[cell]   // barriers reached
	pendSocks lists.List[socket] // sockets with messages in overflow
	untried   int                // of pendSocks, from the head on: not tried since memory came back
	again     bool               // writePending may find something to write
	full      bool               // in this pass of writePending one of them found no room
	noRoom    bool               // none was written for want of room: see mayWrite

	gone   lists.List[slot] // slots whose socket is gone, as the event ring says when it is published
	raised []*cell          // marks to publish behind the events of this turn
}

// pend has c's lists looked at: something new waits in them.
func (cs *clientTable) pend(c *Client) {
	if c.again || c.noRoom || c.dead {
		return
	}
	c.again = true
	cs.e.Unpark(c)
}

// waits reports whether something waits for room in c's event ring, or for
// receive memory.
func (p *pending) waits() bool { return p.pendOps.N+p.pendCells.N+p.pendNote.N+p.pendSocks.N > 0 }

// room reports whether an event may be written at once: nothing waits in front
// of it for want of room.
func (c *Client) room() bool { return !c.noRoom && c.ev.Free() > 0 }

// mayPut reports whether the event ring has room, for what writePending writes. Once it had none it
// has none for the rest of the pass: its owner reads meanwhile, and two looks may differ.
func (c *Client) mayPut() bool {
	c.full = c.full || c.ev.Free() == 0
	return !c.full
}

// mayWrite reports whether writePending may find something to write.
func (c *Client) mayWrite() bool { return c.again || c.noRoom && c.ev.Free() > 0 }

// writePending writes what waits for c's event ring, as much as there is room
// for and a turn allows, and reports whether it wrote anything. The kinds take
// turns, so that none waits for another that always has more.
func (cs *clientTable) writePending(c *Client) bool {
	c.again, c.noRoom = false, false
	c.untried = min(c.untried, c.pendSocks.N)
	done := 0
	for done < writeTurn {
		c.full = false
		n := cs.writeMarks(c) + cs.writeStatuses(c) + cs.writeNotices(c) + cs.e.rx.writeSockets(c)
		if n == 0 {
			c.passed()
			return done > 0 || c.again
		}
		done += n
	}
	c.again = c.waits()
	return true
}

// passed notes that a pass wrote nothing, and why.
func (c *Client) passed() {
	c.noRoom = c.full
	c.again = c.untried > 0 && !c.noRoom
}

// writeStatuses writes statuses and returns how many.
func (cs *clientTable) writeStatuses(c *Client) (n int) {
	for ; c.pendOps.N > 0 && n < writeEach; n++ {
		t := c.pendOps.Head.Of
		if !cs.putStatuses(t) {
			break
		}
		c.pendOps.Pop()
		cs.told(t)
	}
	return n
}

// told ends t's stay in pendOps: its statuses were written, or nobody wants them
// any more.
func (cs *clientTable) told(t *txMsg) {
	cs.statusTold(t.slot.cell)
	if t.done() {
		cs.e.tx.giveBack(t)
	}
}

// writeMarks tells waiters that their barrier was reached, and returns how many.
func (cs *clientTable) writeMarks(c *Client) (n int) {
	for ; c.pendCells.N > 0 && n < writeEach && c.mayPut(); n++ {
		ce := c.pendCells.Head.Of
		c.pendCells.Del(&ce.pend)
		if ce.live() {
			cs.checkArmed(c, ce)
		}
	}
	return n
}

// writeNotices writes what destinations have to tell, and returns of how many.
func (cs *clientTable) writeNotices(c *Client) (n int) {
	for ; c.pendNote.N > 0 && n < writeEach; n++ {
		sl := c.pendNote.Head.Of
		if !cs.putNotices(sl) {
			break
		}
		c.pendNote.Del(&sl.pend)
	}
	return n
}
