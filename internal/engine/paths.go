package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/verbs"
)

// Two hosts may have several connections in a lane: its paths. The messages of a socket go by one
// of them, which its port says: port modulo remote.paths. How many there are is the smaller of
// the numbers that the two daemons want. A daemon learns the number with the first handshake with
// an instance of the peer's daemon, and it stays for that instance: a port's path never changes
// while a message may be on its way. Until the number is known, messages wait in their
// destinations, at the connection of path 0.
//
// A peer's daemon that is another one may want another number. Then messages that
// the former one has not accepted are taken back from all connections, and wait in
// their destinations for the connections of the new paths.

// lanePath says which of the connections to an address is meant: a lane, and behind 8 bits a path.
type lanePath uint16

func (p *peer) at() lanePath { return lanePath(p.lane) | lanePath(p.path)<<8 }

// in is the connection of path in the lane of l.
func (l lanePath) in(path uint8) lanePath { return l&0xff | lanePath(path)<<8 }

// Place is what an event is about: a connection, or without OfLane a host. Without addresses it is about neither.
type Place struct {
	Local, Remote netip.Addr
	Lane          ctl.LanePath
	OfLane        bool
}

func (p *peer) place() Place {
	at := p.remote.place()
	at.Lane, at.OfLane = ctl.LanePath{Lane: p.lane, Path: p.path}, true
	return at
}

func (h *remote) place() Place { return Place{Local: h.local.addr, Remote: h.addr} }

// pathKeys is the distance between the keys of the connections in two paths of one lane. The lanes
// of path 0 have the keys behind their host's.
const pathKeys verbs.PeerKey = 1 << 56

// pathOf is the path of a socket's port, 0 while it is not known. h may be nil.
func (h *remote) pathOf(port uint16) uint8 {
	if h == nil || h.paths <= 1 {
		return 0
	}
	return uint8(port % uint16(h.paths))
}

// has returns an error if no path of that number leads to h, which may be nil, or nobody knows yet.
func (h *remote) has(path uint8) error {
	switch {
	case path == 0 || h != nil && path < h.paths:
		return nil
	case h == nil || h.paths == 0:
		return fmt.Errorf("%w: no path %d is known", ctl.ErrNotFound, path)
	}
	return fmt.Errorf("%w: no path %d, but 0 to %d,", ctl.ErrNotFound, path, h.paths-1)
}

// learnPaths takes the number of paths to the instance of h's daemon that p has just met. p is
// not Ready yet. It becomes so within the same call of its connection.
func (ps *peerTable) learnPaths(p *peer, n int) {
	h := p.remote
	was := h.paths
	switch h.paths = uint8(n); was {
	case h.paths:
		ps.endFurther(h)
		return
	case 0: // nothing was handed over without knowing the number
		h.lookAsking()
		for _, q := range slices.Clone(h.lanes) {
			ps.e.dests.tell(&q.slots)
		}
		return
	}
	for _, q := range h.lanes {
		q.moving = true
		ps.e.dirty.touch(q)
	}
}

// endFurther has connections of h that no path has any more end what they have for a former instance. A daemon that knows one path
// rejects them, so their own handshake never does.
func (ps *peerTable) endFurther(h *remote) {
	for _, q := range h.lanes {
		if q.path >= h.paths {
			q.moving = true
			ps.e.dirty.touch(q)
		}
	}
}

// strays reports whether messages of sl are not to be handed to p: they have another path, or it is
// not known yet, or what p's connection has of them is to be taken back.
func (p *peer) strays(sl *slot) bool {
	return p.paths == 0 || p.moving || p.elsewhere(sl)
}

// elsewhere reports whether messages of sl go by another path than p's.
func (p *peer) elsewhere(sl *slot) bool { return p.path != p.pathOf(sl.sock.port) }

// moveOn has sl, which waits, lead to the connection of its path, if p's is another, and reports whether it does.
// Without room for that connection the messages of a closed destination wait at p.
func (p *peer) moveOn(sl *slot) bool {
	if p.paths == 0 || p.moving || !p.elsewhere(sl) || sl.handed+sl.pieces > 0 {
		return false
	}
	ds := &p.c.e.dests
	if !sl.closed {
		p.leaveTurn(sl)
		ds.refresh(sl) // with what is news of p
		owed := sl.ups != p.ups || p.wasUp && !p.isUp && !p.parted
		ds.home(sl)
		if w, ok := sl.way.(*peer); ok && owed {
			w.owesUp(sl)
		}
		return true
	}
	w, err := ds.wayTo(sl.sock, sl.addr)
	if err != nil {
		ds.nowhere.lookAgain()
		return false
	}
	p.leaveTurn(sl)
	sl.leadBy(w)
	w.resume(sl)
	ds.e.peers.dropIfNew(p)
	return true
}

// owesUp has sl, which was notified that its former connection is down, be notified when p is up. Destinations that
// were opened at p are not notified of the first time, so sl alone is behind p.ups.
func (p *peer) owesUp(sl *slot) {
	if p.isUp || !p.wasUp {
		sl.ups--
		p.c.e.dests.refresh(sl)
	}
}

// leave takes back what p's connection has for a former instance of the peer's daemon, if paths
// have changed. It reports whether messages may be handed over again.
func (p *peer) leave(now int64) bool {
	switch {
	case !p.moving:
		return true
	case p.c.State() == conn.Error || p.c.State() == conn.Up && !p.c.Ready():
		return false
	}
	p.c.to.GiveBack(now, p.instance)
	p.moving = false
	if p.stale() {
		p.withdraw()
	}
	p.lookPaused()
	p.c.e.dests.tell(&p.slots)
	return true
}

// withdraw ends the internal messages that wait at p, whose connection has not met the instance of
// the peer's daemon that is known. The GRANTs among them grant nothing any more. Those that Expose has
// made are made anew, on the connections of the present paths. For the others the messages or questions
// that they are made for see to it. REVOKEs still go out, unless p's path is no more.
func (p *peer) withdraw() {
	ks := &p.c.e.keys
	var grants []ctlMsg
	p.c.CancelMatching(func(m *msg.Msg) bool {
		t, ok := m.Owner.(*ctlMsg)
		if !ok || m.Internal == wire.TypeRevoke && p.path < p.paths {
			return false
		}
		if t.region != nil {
			grants = append(grants, ctlMsg{region: t.region, port: t.port, by: t.by})
		}
		return true
	}, msg.Cancelled)
	for _, t := range grants {
		if ks.ungrant(t.region, p, t.port) && t.by == byExpose {
			ks.exposeAnew(t.region, p, t.port)
		}
	}
	p.askAgain()
}

// exposeAnew makes a grant again that Expose has made at p.
func (ks *keyTable) exposeAnew(r *region, p *peer, port uint16) {
	w, err := ks.e.dests.wayTo(r.sock, p.addr)
	if q, ok := w.(*peer); ok && err == nil {
		err = q.exposeAt(r, port, byExpose, 0)
	}
	if err != nil {
		ks.tellNotGranted(r, p, port)
	}
}

// A grant by Expose is there before what the sockets of the region's client send later in the
// region's lane. What goes by another path than the GRANT waits until the GRANT is acked.

// several reports whether p's lane has, or may get, more than one path.
func (p *peer) several() bool { return p.wantsPaths > 1 }

// holdsFor lists m, a GRANT by Expose that p's connection has, among those that messages wait for.
func (p *peer) holdsFor(m *ctlMsg) {
	cl := m.region.sock.cl
	l := p.exposes[cl]
	if l == nil {
		if p.exposes == nil {
			p.exposes = map[*Client]*lists.List[ctlMsg]{}
		}
		l = &lists.List[ctlMsg]{}
		p.exposes[cl] = l
	}
	if m.number == 0 {
		l.AddFront(&m.inExposing, m)
	} else {
		l.Add(&m.inExposing, m)
	}
	p.remote.exposing++
}

// holdsNoMore is the end of that.
func (p *peer) holdsNoMore(m *ctlMsg, cl *Client) {
	if !m.inExposing.On() {
		return
	}
	l := p.exposes[cl]
	if l.Del(&m.inExposing); l.N == 0 {
		delete(p.exposes, cl)
	}
	h := p.remote
	h.exposing--
	for path := range uint8(wire.MaxPaths) {
		if q := h.lane(p.at().in(path)); q != nil && q != p {
			q.lookPaused()
		}
	}
}

// behindGrant reports whether t has to wait for the ack of a GRANT on another path.
func (p *peer) behindGrant(t *txMsg) bool {
	h := p.remote
	if h.exposing == 0 {
		return false
	}
	for path := range uint8(wire.MaxPaths) {
		q := h.lane(p.at().in(path))
		if q == nil || q == p {
			continue
		}
		if l := q.exposes[t.sock.cl]; l != nil && l.Head.Of.number < t.nth {
			return true
		}
	}
	return false
}

// knock has path 0 of p's lane try once to connect, because a peer has rejected p, which is in another path. The
// peer may be a daemon or a kernel that does not know paths, which only a handshake in path 0 tells. knock
// reports whether that is to be found out first.
func (ps *peerTable) knock(p *peer) bool {
	first, err := ps.peer(p.local, p.addr, p.at().in(0), nil)
	if err != nil || first.c.Ready() {
		return false
	}
	first.knocks = true
	ps.e.dirty.touch(first)
	return first.reach.last == 0
}
