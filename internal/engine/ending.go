package engine

import (
	"maps"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/chores"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/rdmaop"
)

// A socket, a process or a region may leave much behind when it ends: messages,
// destinations, keys. Its end is a chore: a turn does a bounded part of it, and the next
// turn goes on from there. A socket's port, quota and names are free before the end is
// done, so nobody waits for it.

// retireNext is the chore that retires regions of which only that is left.
func (ks *keyTable) retireNext() bool {
	if ks.retiring.N == 0 {
		return false
	}
	ks.retire(ks.retiring.Head.Of)
	return true
}

// endNext is the chore that ends processes, the oldest first.
func (cs *clientTable) endNext() bool {
	if cs.leaving.N == 0 {
		return false
	}
	if c := cs.leaving.Head.Of; cs.endClient(c) {
		cs.leaving.Del(&c.inLeaving)
		c.acct.leaving--
		cs.unref(c)
	}
	return true
}

// endAtOnce ends what there is without regard for the budget: the daemon ends.
func (cs *clientTable) endAtOnce() {
	e := cs.e
	e.chores.Finish()
}

// retireIfDead ends r if nobody can use its key any more, in this turn or a later
// one.
func (ks *keyTable) retireIfDead(r *region) bool {
	if r.exp.State() != rdmaop.ExportRevoked {
		return false
	}
	switch {
	case r.inDead.On():
	case ks.e.chores.MayLook(1):
		ks.retire(r)
	default:
		ks.retiring.Add(&r.inDead, r)
		ks.e.chores.Begin(&ks.retiring.Chore)
	}
	return true
}

// sendNowCost bounds how often a turn does sendNow, which looks at what others have sent, too.
const sendNowCost = chores.Budget / 4

// sendNow has the connections and the sockets of this host take what they can take at once.
// What a socket has sent before it closes, or its process ends, is withdrawn only if it had to
// wait for the network or for its receiver: sendmsg of the kernel transmits in its caller's call
// (net/rds/send.c rds_send_xmit). false: not in this turn.
func (e *Engine) sendNow() bool {
	if !e.chores.MayLook(sendNowCost) {
		return false
	}
	e.dirty.flushPeers()
	e.loop.run()
	return true
}

// Leave is Detach of a client whose process has ended by itself: what it had submitted goes out
// as far as sendNow allows. If Leave returns errAgain, it has to be called again in another turn.
func (e *Engine) Leave(c *Client, p *RingPlace) error {
	switch err := e.clients.behindRing(c, p); {
	case err == errAgain:
		return err
	case err != nil: // the engine has ended it
		return nil
	case c.refs > 0 && !e.sendNow():
		return errAgain
	}
	e.Detach(c)
	return nil
}

// Detach ends a client: its ports and keys are free as fast as turns allow, and to
// whoever asks for a port at once; its memory when no work request and no region
// uses it any more.
func (e *Engine) Detach(c *Client) {
	if c.dead {
		return
	}
	c.dead = true
	if c.onEnd != nil {
		c.onEnd()
	}
	c.refs++ // until all of it has ended
	e.clients.all = remove(e.clients.all, c)
	e.clients.active.Del(&c.inActive)
	c.freeing = lists.Sorted(maps.Keys(c.buffers))
	c.acct.leaving++
	e.clients.leaving.Add(&c.inLeaving, c)
	e.chores.Begin(&e.clients.leaving.Chore)
}

// endClient ends all that c has; false: the rest is for another turn.
func (cs *clientTable) endClient(c *Client) bool {
	e := cs.e
	for ; c.ended < len(c.socks); c.ended++ {
		if s := c.socks[c.ended]; s != nil && !cs.endSocket(s) || s == nil && !e.chores.MayLook(1) {
			return false
		}
	}
	for len(c.freeing) > 0 {
		if !e.chores.MayLook(1) {
			return false
		}
		if b := c.buffers[c.freeing[0]]; b != nil {
			e.keys.freeBuffer(b, nil)
		}
		c.freeing = c.freeing[1:]
	}
	for c.pendOps.N > 0 {
		if !e.chores.MayLook(1) {
			return false
		}
		cs.told(c.pendOps.Pop())
	}
	return true
}

// bound returns the socket at a port of l, nil if there is none. That of a process
// that has ended is not there any more, whether its turn has come or not.
func (cs *clientTable) bound(l *localAddr, port uint16) *socket {
	s := l.ports.Get(port)
	if s != nil && s.cl != nil && s.cl.dead {
		cs.unbind(s)
		return nil
	}
	return s
}

// unbind frees what others may want of s: its port and its place in the quota. From
// here on s is closed, and nobody finds it.
func (cs *clientTable) unbind(s *socket) {
	e := cs.e
	if s.closed {
		return
	}
	s.closed = true
	if !s.left { // else it is somebody else's
		e.rx.leavePort(s)
	}
	s.cl.acct.sockets--
	s.cl.pendSocks.Del(&s.pend)
	s.unended = s.txs.N
	e.chores.Spend(s.partials.N)
	cs.forgetPartials(s) // what comes whole now would be its own again
}

// endSocket closes s: unsent messages are withdrawn, those on the wire may or may
// not arrive, and nothing is told to anybody (net/rds/af_rds.c rds_release). It
// returns false if the rest is for another turn.
func (cs *clientTable) endSocket(s *socket) bool {
	e := cs.e
	if !e.chores.MayLook(1) {
		return false
	}
	cs.unbind(s)
	if !cs.endArrived(s) || !cs.endSent(s) {
		return false
	}
	for s.waiters.N > 0 { // their next try finds no socket
		if !e.chores.MayLook(1) {
			return false
		}
		e.loop.wakeWaiter(s)
	}
	for s.slots.N > 0 {
		if !e.chores.MayLook(1) {
			return false
		}
		e.dests.closeSlot(s.slots.Head.Of)
	}
	c := s.cl
	if s.folded != nil {
		c.pendNote.Del(&s.folded.pend)
	}
	for s.regions.N > 0 {
		r := s.regions.Head.Of
		if !e.chores.MayLook(1 + r.exp.Grants()) {
			return false
		}
		e.keys.releaseRegion(r)
	}
	// Messages the application has not taken: their memory comes back with
	// the receive ids, whoever returns them.
	c.dropSock(s)
	return true
}

// endArrived drops what has arrived for s and did not get to its client.
func (cs *clientTable) endArrived(s *socket) bool {
	e := cs.e
	if s.over.N > 0 && e.rx.ends {
		e.rx.lost = true
	}
	for s.over.N > 0 {
		if !e.chores.MayLook(1) {
			return false
		}
		e.rx.freeRx(s.popOver())
	}
	return true
}

// endSent withdraws what s has sent, the last message first: what goes out between the turns that
// this takes must not follow a message that was withdrawn. What a work request still uses stays, ahead of
// what has not been looked at.
func (cs *clientTable) endSent(s *socket) bool {
	e := cs.e
	for ; s.unended > 0 && s.txs.N > 0; s.unended-- {
		if !e.chores.MayLook(1) {
			return false
		}
		t := s.txs.Tail.Of
		s.txs.Del(&t.all)
		s.txs.AddFront(&t.all, t)
		t.slot.way.end(t, msg.Cancelled)
	}
	return true
}

// forgetPartials drops the messages to s that are under assembly.
func (cs *clientTable) forgetPartials(s *socket) {
	e := cs.e
	for s.partials.N > 0 {
		m := s.partials.Head.Of
		m.from.c.ForgetPartial(m)
		e.rx.endPartial(m.from, m)
		e.rx.freeRx(m)
	}
}
