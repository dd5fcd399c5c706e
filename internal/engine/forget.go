package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
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
	// sweepSpends: a look ends when so many messages that were owed have ended.
	sweepSpends = 4096
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
	spent     int    // messages that this look has ended
}

// crowdedPeers reports whether peers are forgotten sooner than after ForgetAfter.
func (ps *peerTable) crowdedPeers() bool { return 4*len(ps.all) > 3*ps.e.cfg.MaxPeers }

// sweepSoon has the peers looked at.
func (ps *peerTable) sweepSoon() {
	e := ps.e
	if ps.sweep.at == 0 {
		ps.sweep.at = e.now + sweepEvery
		e.due.by(ps.sweep.at)
	}
}

// sweepPeers looks at some of the peers, in turn, and forgets those it may.
func (ps *peerTable) sweepPeers() {
	e := ps.e
	s := &ps.sweep
	if s.at == 0 || e.now < s.at {
		e.due.by(s.at)
		return
	}
	s.at, s.spent = 0, 0
	for n := min(sweepMost, len(ps.all)); n > 0 && len(ps.all) > 0; n-- { // several may go at once
		if s.spent >= sweepSpends {
			s.at = e.now + 1
			break
		}
		if s.next >= len(ps.all) {
			s.next = 0
		}
		p := ps.all[s.next]
		if !ps.forgetIfIdle(p) {
			s.next++
		}
		if p.ages() || ps.crowdedPeers() {
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
	return ok && !p.exposed() || p.awaySince() >= 0
}

// forgetIfIdle forgets p, or all of its address, if it may, and reports whether
// p is gone.
func (ps *peerTable) forgetIfIdle(p *peer) bool {
	e := ps.e
	h := p.remote
	if !p.idle() {
		return false
	}
	since, _ := p.c.IdleSince()
	away := e.now - since
	switch {
	case p.c.State() == conn.Up:
		if ps.crowdedPeers() && away >= hurryAfter && !h.granted() {
			p.c.Reset(e.now, errIdle)
		}
		return false
	case away < min(hurryAfter, e.cfg.ForgetAfter):
		return false
	case len(h.lanes) > 1 && ps.forgetLane(p):
		return true
	}
	if since = h.awaySince(); since < 0 || e.now-since < ps.forgetAfter(h) {
		return false
	}
	ps.forgetRemote(h)
	return true
}

// forgetAfter is how long h has to be away.
func (ps *peerTable) forgetAfter(h *remote) int64 {
	after := ps.e.cfg.ForgetAfter
	if ps.crowdedPeers() && !h.granted() || h.answers > maxCtl/2 || h.owing > msg.MaxOwing/2 {
		return min(hurryAfter, after)
	}
	return after
}

// awaySince returns since when no lane of h is connected or has anything to do, -1: one is or has.
func (h *remote) awaySince() (since int64) {
	for _, p := range h.lanes {
		at, idle := p.c.IdleSince()
		if !idle || p.c.State() != conn.Down || !p.idle() {
			return -1
		}
		since = max(since, at)
	}
	return since
}

// idle reports whether nothing here leads to p, a lane by queue pairs of an rdsd. While it is
// down, what is only owed to it leads nowhere.
// Kernel peers are none: they are named in the configuration, and cannot be told
// that their sequences are forgotten.
func (p *peer) idle() bool {
	if !p.c.profile().learns || p.slots.N+p.flows.n+p.paused.N+p.partials > 0 || p.breaking || p.emptying {
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
func (ps *peerTable) forgetLane(p *peer) bool {
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
	ps.unlink(p)
	if past.Peer != 0 && past.Peer == h.instance {
		if h.past == nil {
			h.past = map[lanePath]conn.Past{}
		}
		h.past[p.at()] = past
	}
	return true
}

// forgetRemote drops all lanes of an address, and all that was known of it. What is owed to it
// was about messages that it reports as Lost, and about grants that end for it, too, when it meets
// this daemon as another instance.
func (ps *peerTable) forgetRemote(h *remote) {
	ps.e.cfg.Trace(h.place(), EventForgotten, nil)
	ps.sweep.spent += h.answers + h.owing
	for _, p := range h.lanes {
		p.unsay()
	}
	if h.granted() {
		ps.voidGrants(h)
	}
	for len(h.lanes) > 0 {
		ps.unlink(h.lanes[0])
	}
	ps.sweep.forgotten++
}

// unsay ends what p, which is down, has to send: GRANTs that the peer knows nothing of as if they had
// not been made.
func (p *peer) unsay() {
	ks := &p.c.e.keys
	p.c.Waiting(func(m *msg.Msg) {
		if t, ok := m.Owner.(*ctlMsg); ok && t.region != nil && !m.EverSent() {
			ks.ungrant(t.region, p, t.port)
		}
	})
	p.c.Close(p.c.e.now)
}

// newInstance is what the daemon is to an address that it knows nothing of: another
// one than to those it has forgotten.
func (ps *peerTable) newInstance() uint64 { return ps.e.cfg.Instance + ps.sweep.forgotten }

// mayLane is nil if a request from h, nil: an address that is not known, may make
// one more lane.
func (ps *peerTable) mayLane(h *remote) error {
	if h == nil {
		return nil
	}
	most := max(leastLanes*int(h.paths), leastLanes, ps.e.cfg.MaxPeers/lanesShare)
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
		if p.c.State() == conn.Down && p.idle() && ps.forgetLane(p) {
			return nil
		}
	}
	return fmt.Errorf("%w: %v has %d connections of its own already", unix.ENOBUFS, h.addr, most)
}

// dropUnused makes room for peers, once a turn: those that were never met and
// that nothing leads to are forgotten, and those that were met and are away. It reports whether there is room.
func (ps *peerTable) dropUnused() bool {
	e := ps.e
	if ps.droppedAt != e.now {
		ps.droppedAt, ps.sweep.spent = e.now, 0
		for i := len(ps.all) - 1; i >= 0 && ps.sweep.spent < sweepSpends; i-- {
			if i >= len(ps.all) { // more than one was forgotten
				continue
			}
			if p := ps.all[i]; !ps.forgetIfIdle(p) {
				ps.dropIfNew(p)
			}
		}
	}
	return len(ps.all) < e.cfg.MaxPeers
}

// dropIfNew forgets a peer that was never met and that nothing leads to any
// more, so that asking for addresses where nobody is leaves nothing behind.
func (ps *peerTable) dropIfNew(p *peer) {
	if p.gone || p.exposed() {
		return
	}
	down := p.c.State() == conn.Down
	if down && p.c.met() {
		ps.sweepSoon()
	}
	if !down || p.c.met() || p.slots.N+p.flows.n+p.paused.N > 0 || p.c.attached() ||
		p.instance != 0 && len(p.lanes) == 1 { // the last lane goes with what is known of the address: forgetIfIdle
		return
	}
	if i := p.c.Info(); i.Queued+i.Unacked == 0 {
		ps.unlink(p)
	}
}

// unlink takes p out of all the engine's lists.
func (ps *peerTable) unlink(p *peer) {
	e := ps.e
	e.users.askedNoMore(p)
	ps.dropLane(p)
	delete(ps.byKey, p.key)
	ps.dropPeer(p)
	e.watch.lists.dropPeer(p)
	if p.emptying {
		e.dirty.emptying = remove(e.dirty.emptying, p)
	}
	e.due.peers.Drop(&p.timer)
	p.c.forget()
	e.watch.count(p)
	p.gone = true
}

// dropPeer takes p off peerTable.all; the last one gets its place.
func (ps *peerTable) dropPeer(p *peer) {
	last := len(ps.all) - 1
	moved := ps.all[last]
	ps.all[p.nth], moved.nth = moved, p.nth
	ps.all[last] = nil
	ps.all = ps.all[:last]
}
