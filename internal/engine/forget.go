package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/mutant"
	"golang.org/x/sys/unix"
)

// A peer is forgotten when it has been away for long and nothing here leads to it. So hosts
// that come and go under ever new addresses do not fill the table of peers. Two things must
// outlast it.
//
// First, what was received, because a peer that comes back sends again what has no ack. A
// lane leaves its sequences behind in remote.past. When the whole address is forgotten, its
// sequences go, too. From then on the daemon presents itself to that address as another
// instance. The peer takes that for a restart: it reports its unacked messages to their
// senders as Lost and sends none of them again.
//
// Second, what was granted, because a restart ends all grants between two hosts. So an
// address with grants keeps its place until it has been away for Config.ForgetAfter,
// however full the table is.

const (
	// hurryAfter is how long in ns a peer has to be away, or idle, when the
	// table of peers fills up.
	hurryAfter = 60_000_000_000
	// sweepEvery is the time in ns between two looks at sweepMost lanes.
	sweepEvery = 10_000_000_000
	sweepMost  = 512
	// lanesShare: one address may have this part of the table in lanes that only
	// its own requests have made.
	lanesShare = 64
	leastLanes = 4
)

var errIdle = errors.New("idle, and the table of peers fills up")

// EventForgotten is the event of a peer that is forgotten.
const EventForgotten = "forgotten"

// sweep is the engine's part: where the next look begins and when it is due.
type sweep struct {
	next int
	at   int64 // 0: there is nobody to forget

	forgotten uint64 // addresses, with the instance they had met
}

// crowdedPeers reports whether peers are forgotten sooner than after ForgetAfter.
func (e *Engine) crowdedPeers() bool { return 4*len(e.peers.all) > 3*e.cfg.MaxPeers }

// sweepSoon has the peers looked at.
func (e *Engine) sweepSoon() {
	if e.peers.sweep.at == 0 {
		e.peers.sweep.at = e.now + sweepEvery
		e.due.by(e.peers.sweep.at)
	}
}

// sweepPeers looks at some of the peers, in turn, and forgets those it may.
func (e *Engine) sweepPeers() {
	s := &e.peers.sweep
	if s.at == 0 || e.now < s.at {
		e.due.by(s.at)
		return
	}
	s.at = 0
	for n := min(sweepMost, len(e.peers.all)); n > 0 && len(e.peers.all) > 0; n-- { // several may go at once
		if s.next >= len(e.peers.all) {
			s.next = 0
		}
		p := e.peers.all[s.next]
		if !e.forgetIfIdle(p) {
			s.next++
		}
		if p.ages() || e.crowdedPeers() {
			s.at = e.now + sweepEvery
		}
	}
	e.due.by(s.at)
}

// ages reports whether p will be forgotten if nothing happens but time.
func (p *peer) ages() bool {
	if p.c.State() != conn.Down || !p.idle() {
		return false
	}
	_, ok := p.c.Past()
	return ok && !p.exposed() || p.away()
}

// forgetIfIdle forgets p, or all of its address, if it may, and reports whether
// p is gone.
func (e *Engine) forgetIfIdle(p *peer) bool {
	h := p.remote
	if mutant.On(mutant.PeersStay) || !p.idle() {
		return false
	}
	since, _ := p.c.IdleSince()
	away := e.now - since
	switch {
	case p.c.State() == conn.Up:
		if e.crowdedPeers() && away >= hurryAfter && !h.granted() {
			p.c.Reset(e.now, errIdle)
		}
		return false
	case away < min(hurryAfter, e.cfg.ForgetAfter):
		return false
	case len(h.lanes) > 1 && e.forgetLane(p):
		return true
	case away < e.cfg.ForgetAfter && (!e.crowdedPeers() || h.granted()), !h.away():
		return false
	}
	e.forgetRemote(h)
	return true
}

// away reports whether no lane of h is connected or has anything to do.
func (h *remote) away() bool {
	for _, p := range h.lanes {
		if p.c.State() != conn.Down || !p.idle() {
			return false
		}
	}
	return true
}

// idle reports whether nothing here leads to p, a lane by queue pairs of an rdsd.
// Kernel peers are none: they are named in the configuration, and cannot be told
// that their sequences are forgotten.
func (p *peer) idle() bool {
	if p.c.Kernel() || p.slots.N+p.flows.N+p.paused.N+p.ctls+len(p.partials) > 0 || p.breaking || p.emptying {
		return false
	}
	_, idle := p.c.IdleSince()
	return idle
}

// granted reports whether one of the two hosts may use memory of the other.
func (h *remote) granted() bool {
	return len(h.allowance.lanes) > 0 || h.grants.Len() > 0
}

// forgetLane drops a lane of an address that has others. What was granted on it
// keeps it.
func (e *Engine) forgetLane(p *peer) bool {
	h := p.remote
	past, ok := p.c.Past()
	if !ok || p.exposed() {
		return false
	}
	for _, lanes := range h.owed {
		if slices.Contains(lanes, p) {
			return false
		}
	}
	e.unlink(p)
	if past.Peer != 0 && past.Peer == h.instance && !mutant.On(mutant.LaneForgotten) {
		if h.past == nil {
			h.past = map[uint8]conn.Past{}
		}
		h.past[p.lane] = past
	}
	return true
}

// forgetRemote drops all lanes of an address, and all that was known of it.
func (e *Engine) forgetRemote(h *remote) {
	e.trace(h.lanes[0], EventForgotten, nil)
	if h.granted() {
		e.voidGrants(h)
	}
	for len(h.lanes) > 0 {
		e.unlink(h.lanes[0])
	}
	if !mutant.On(mutant.PastForgotten) {
		e.peers.sweep.forgotten++
	}
}

// newInstance is what the daemon is to an address that it knows nothing of: another
// one than to those it has forgotten.
func (e *Engine) newInstance() uint64 { return e.cfg.Instance + e.peers.sweep.forgotten }

// mayLane is nil if a request from h, nil: an address that is not known, may make
// one more lane.
func (e *Engine) mayLane(h *remote) error {
	if h == nil {
		return nil
	}
	most := max(leastLanes, e.cfg.MaxPeers/lanesShare)
	var own []*peer
	for _, p := range h.lanes {
		if p.slots.N == 0 {
			own = append(own, p)
		}
	}
	if len(own) < most {
		return nil
	}
	for _, p := range own {
		if p.c.State() == conn.Down && p.idle() && e.forgetLane(p) {
			return nil
		}
	}
	return fmt.Errorf("%w: %v has %d lanes of its own already", unix.ENOBUFS, h.addr, most)
}

// dropUnused makes room for peers, once a turn: those that were never met and
// that nothing leads to are forgotten, and those that were met and are away. It reports whether there is room.
func (e *Engine) dropUnused() bool {
	if e.peers.droppedAt != e.now {
		e.peers.droppedAt = e.now
		for i := len(e.peers.all) - 1; i >= 0; i-- {
			if i >= len(e.peers.all) { // more than one was forgotten
				continue
			}
			if p := e.peers.all[i]; !e.forgetIfIdle(p) {
				e.dropIfNew(p)
			}
		}
	}
	return len(e.peers.all) < e.cfg.MaxPeers
}

// dropIfNew forgets a peer that was never met and that nothing leads to any
// more, so that asking for addresses where nobody is leaves nothing behind.
func (e *Engine) dropIfNew(p *peer) {
	i := p.c.Info()
	if i.Met && i.State == conn.Down {
		e.sweepSoon()
	}
	if i.Met || i.State != conn.Down || i.Queued+i.Unacked > 0 || p.slots.N+p.flows.N+p.paused.N > 0 || p.c.attached() ||
		p.instance != 0 && len(p.lanes) == 1 { // the last lane goes with what is known of the address: forgetIfIdle
		return
	}
	e.unlink(p)
}

// unlink takes p out of all the engine's lists.
func (e *Engine) unlink(p *peer) {
	e.askedNoMore(p)
	e.dropLane(p)
	delete(e.peers.byKey, p.key)
	e.dropPeer(p)
	e.lists.dropPeer(p)
	if p.emptying {
		e.dirty.emptying = remove(e.dirty.emptying, p)
	}
	e.due.peers.Drop(&p.timer)
	p.c.forget()
	e.count(p)
	p.gone = true
}

// dropPeer takes p off peerTable.all; the last one gets its place.
func (e *Engine) dropPeer(p *peer) {
	last := len(e.peers.all) - 1
	moved := e.peers.all[last]
	e.peers.all[p.nth], moved.nth = moved, p.nth
	e.peers.all[last] = nil
	e.peers.all = e.peers.all[:last]
}
