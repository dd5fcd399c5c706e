package engine

import (
	"errors"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// The reason why a peer is not reached is published in the slots that lead there, where
// senders see it. It is also sent once as a notice, and again when it changes.

// reach is a peer's part of that.
type reach struct {
	why   uint8 // shm.Reach..., 0: it is reached, or nobody tries
	last  uint8 // of the last failed attempt
	pings []*Ping
}

// reachOf classifies the error of an attempt to connect.
func reachOf(err error) uint8 {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	var late interface{ Timeout() bool }
	switch {
	case is(ErrNotAllowed):
		return shm.ReachForbidden
	case is(verbs.ErrBusy): // it has nothing against this host
		return shm.ReachOther
	case is(conn.ErrRejected, conn.ErrIncompatible):
		return shm.ReachRejected
	case is(unix.ECONNREFUSED):
		return shm.ReachRefused
	case is(unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EHOSTDOWN, unix.ENETDOWN):
		return shm.ReachNoRoute
	case is(verbs.ErrLarge): // it answers, but not to large packets
		return shm.ReachOther
	case is(conn.ErrTimeout) || errors.As(err, &late) && late.Timeout(): // also a host whose daemon is stopped
		return shm.ReachTimeout
	}
	return shm.ReachOther
}

// unreached notes that an attempt to connect p has failed. A rejection whose reason does not pass by itself
// counts at once. Another one counts when it comes twice in a row: two requests that cross end with one, and a
// daemon of an older version does not say that they cross.
func (ps *peerTable) unreached(p *peer, err error) {
	if err == nil || errors.Is(err, conn.ErrNoBuffer) {
		return // ours
	}
	if errors.Is(err, conn.ErrLater) {
		return // the peer is on its way here, or is to be asked again
	}
	if p.c.retries() {
		return // the other device is tried
	}
	why := reachOf(err)
	again := p.reach.last == why || errors.Is(err, conn.ErrForbidden) || errors.Is(err, conn.ErrIncompatible)
	p.reach.last, p.knocks = why, false
	if errors.Is(err, conn.ErrPath) && ps.knock(p) {
		return
	}
	if !again && (why == shm.ReachRejected || why == shm.ReachOther) {
		return
	}
	ps.setReach(p, why)
	for _, x := range p.reach.pings {
		x.fail(err)
	}
	p.reach.pings = nil
}

// setReach has all destinations that lead to p know why it is not reached; 0: it
// is.
func (ps *peerTable) setReach(p *peer, why uint8) {
	e := ps.e
	if why == 0 {
		p.reach.last, p.reach.pings = 0, nil
	}
	if why != 0 {
		e.halt.partedLost(p)
	}
	if p.reach.why == why {
		return
	}
	p.reach.why = why
	e.dests.tell(&p.slots)
}

// setSlotReach publishes in sl why its host is not reached, and tells it.
func (ps *peerTable) setSlotReach(sl *slot, why uint8) {
	if sl.reach == why {
		return
	}
	sl.reach, sl.reachNews = why, why != 0
	sl.sock.cl.table.Slot(sl.idx).StoreUnreachable(uint32(why))
	if sl.reachNews {
		ps.e.clients.note(sl)
	}
}

// newReach looks anew at whether p is reached: one more destination leads there. What an attempt
// found that nobody has repeated since is no news.
func (ps *peerTable) newReach(p *peer) {
	switch {
	case !p.c.Ready() && ps.e.cfg.Allowed(p.addr) != nil: // a connection that is up is allowed
		ps.setReach(p, shm.ReachForbidden)
	case p.reach.why == shm.ReachForbidden || p.rests():
		ps.setReach(p, 0)
	}
}

// rests reports whether nobody connects p or is about to.
func (p *peer) rests() bool { return p.c.State() == conn.Down && p.c.retryAt() == 0 }

// restReach forgets why p is not reached if nothing waits for p any more. So the next attempt that
// fails is news.
func (ps *peerTable) restReach(p *peer) {
	if p.reach.why != 0 && p.reach.why != shm.ReachForbidden && ps.e.halt.stage == haltNone && p.rests() {
		ps.setReach(p, 0)
	}
}

// allowedAnew applies a change of peers.allow to p: a peer that is forbidden from
// now on is broken off, one that no longer is gets tried at once.
func (ps *peerTable) allowedAnew(p *peer) {
	e := ps.e
	switch err := e.cfg.Allowed(p.addr); {
	case err != nil:
		if !p.rests() {
			p.c.CutOff(e.now, err) // what waits to try again tries at once, and has the true error
		}
		ps.setReach(p, shm.ReachForbidden)
	case p.reach.why == shm.ReachForbidden:
		ps.setReach(p, 0)
		if p.c.State() == conn.Down {
			p.c.Reset(e.now, errAdmin)
		}
	}
}

// putUnreachable writes the notice of a host that is not reached; false: no room.
func (cs *clientTable) putUnreachable(sl *slot) bool {
	if sl.reachNews && !cs.put(sl, shm.EventNotice{Kind: shm.EvNotice, Notice: shm.NoticeUnreachable, Count: 1, Reason: sl.reach}) {
		return false
	}
	sl.reachNews = false
	return true
}
