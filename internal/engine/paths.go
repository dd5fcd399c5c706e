package engine

import (
	"github.com/rdsd/rdsd/conn"
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

// learnPaths takes the number of paths to the instance of h's daemon that p has just met.
func (ps *peerTable) learnPaths(p *peer, n int) {
	h := p.remote
	was := h.paths
	if h.paths = uint8(n); was == 0 || was == h.paths { // nothing was handed over without knowing it
		return
	}
	for _, q := range h.lanes {
		q.moving = true
		q.pause()
		ps.e.dirty.touch(q)
	}
}

// pause has all that take turns on p wait: the destinations of a cell take turns on one connection.
func (p *peer) pause() {
	for p.flows.N > 0 {
		for ce := p.flows.Head.Of; ce.turn.N > 0; {
			sl := ce.turn.Head.Of
			p.leaveTurn(sl)
			p.paused.Add(&sl.paused, sl)
		}
	}
}

// strays reports whether messages of sl are not to be handed to p: they have another path, or it is
// not known yet, or what p's connection has of them is to be taken back, or keys that were granted before
// the paths were known may come later.
func (p *peer) strays(sl *slot) bool {
	h := p.remote
	return h.paths == 0 || p.moving || p.path != h.pathOf(sl.sock.port) || p.path != 0 && h.early > 0
}

// moveOn has sl, which waits, lead to the connection of its path, if p's is another, and reports whether it does.
func (p *peer) moveOn(sl *slot) bool {
	h := p.remote
	if h.paths == 0 || p.moving || p.path == h.pathOf(sl.sock.port) || sl.handed+sl.pieces > 0 {
		return false
	}
	p.leaveTurn(sl)
	ds := &p.c.e.dests
	if !sl.closed {
		ds.home(sl)
		return true
	}
	sl.way, _ = ds.wayTo(sl.sock, sl.addr)
	if sl.way == transport(&ds.nowhere) {
		ds.e.tx.cancelClosed(sl)
	}
	sl.way.resume(sl)
	ds.e.peers.dropIfNew(p)
	return true
}

// leave takes messages back from p's connection, if paths have changed. It reports whether they may be
// handed over again.
func (p *peer) leave(now int64) bool {
	switch {
	case !p.moving:
		return true
	case p.c.State() == conn.Error || p.c.State() == conn.Up && !p.c.Ready():
		return false
	}
	p.c.to.Leave(now, p.instance, p.path >= p.paths)
	p.moving = false
	for _, x := range p.stranded {
		p.c.e.keys.exposeAnew(x)
	}
	p.stranded = nil
	if p.path >= p.paths {
		p.askAgain() // the question was withdrawn, too
	}
	p.lookPaused()
	return true
}

// stranded is a GRANT that came to nothing because its connection's path is gone.
type stranded struct {
	p      *peer
	region uint32
	port   uint16
}

// strand notes m, a GRANT that ends because the path of its connection is gone.
func (p *peer) strand(m *ctlMsg) {
	if p.moving && m.region != nil && m.by == byExpose && p.path >= p.paths {
		p.stranded = append(p.stranded, stranded{p, m.region.id, m.port})
	}
}

// exposeAnew makes the grant of x on another connection.
func (ks *keyTable) exposeAnew(x stranded) {
	r := ks.by[x.region]
	if r == nil || !ks.ungrant(r, x.p, x.port) {
		return
	}
	w, err := ks.e.dests.wayTo(r.sock, x.p.addr)
	if err == nil {
		err = w.expose(r, x.port, byExpose)
	}
	if err != nil {
		ks.tellNotGranted(r, x.p, x.port)
	}
}

// knock has path 0 of p's lane connect, because a peer has rejected p, which is in another path: it
// may be a daemon that does not know paths, which only a handshake in path 0 tells.
func (ps *peerTable) knock(p *peer) {
	if p.path == 0 {
		return
	}
	first, err := ps.peer(p.local, p.addr, p.at().in(0), nil)
	if err == nil && !first.c.Ready() {
		first.knocks = true
		ps.e.dirty.touch(first)
	}
}
