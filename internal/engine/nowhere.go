package engine

import (
	"slices"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ctl"
	"golang.org/x/sys/unix"
)

// nowhere is the transport of destinations that have no place, and of those that have one and find
// no room for one more peer, which are its audience. What is sent there waits, as it does for any
// host that cannot be reached.
type nowhere struct {
	e *Engine
	audience
	again int64 // when to look for room again; at says whether there is a need to
	paths bool  // for the closed destinations that wait in another path than theirs, see moveOn
}

// homeRetryNs: how often to look for room for more peers, for so many
// destinations at a time.
const (
	homeRetryNs = 10_000_000
	homesATurn  = 256
)

// at is when to look for room again, 0: nobody waits for it.
func (n *nowhere) at() int64 {
	if n.audience.N == 0 && !n.paths {
		return 0
	}
	return n.again
}

// findHomes leads destinations that found too many peers to theirs, if there is room now.
func (n *nowhere) findHomes() {
	e := n.e
	if at := n.at(); at == 0 || e.now < at {
		e.due.by(at)
		return
	}
	n.again = e.now + homeRetryNs
	// Of one user there may be too many and room for another's. Who finds none goes to the end.
	for range min(n.audience.N, homesATurn) {
		e.dests.home(n.audience.Head.Of)
	}
	if n.paths {
		n.paths = false
		for _, p := range slices.Clone(e.peers.all) {
			if p.several() {
				p.lookPaused()
			}
		}
	}
	e.due.by(n.at())
}

func (n *nowhere) join(sl *slot) {
	if sl.counted {
		sl.leadTo(&n.audience)
		n.wait()
	}
}

// lookAgain has closed destinations that find no room for the connection of their path look again.
func (n *nowhere) lookAgain() {
	n.paths = true
	n.wait()
}

func (n *nowhere) wait() {
	n.again = n.e.now + homeRetryNs
	n.e.due.by(n.again)
}

func (n *nowhere) left(sl *slot) { n.e.tx.cancelClosed(sl) }

func (n *nowhere) take(t *txMsg) {
	t.ungranted = t.m.DestCookie != 0
	t.slot.queue(t)
}

func (n *nowhere) end(t *txMsg, o msg.Outcome) {
	t.slot.unqueue(t)
	n.e.tx.msgDone(t, o)
}

// inform: without a place, sl gets no news, and is congested once it waits for one.
func (n *nowhere) inform(sl *slot) (congested bool) { return sl.lead != nil }

func (n *nowhere) waitsFor(sl *slot, _ bool) string {
	if sl.lead == &sl.sock.cl.acct.waiting {
		return ctl.WaitsForQuota
	}
	return ctl.WaitsForRoom
}

func (n *nowhere) resume(*slot)                        {}
func (n *nowhere) check(*txMsg, *txOp) unix.Errno      { return unix.ENOBUFS } // no peer, no grant
func (n *nowhere) retired(*txMsg)                      {}
func (n *nowhere) expose(*region, uint16, offer) error { return unix.ENOBUFS }
func (n *nowhere) renew(*pin)                          {}
func (n *nowhere) times() *times                       { return nil }
