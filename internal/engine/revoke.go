package engine

import (
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// A key is taken back from a peer in two parts. With several paths a lane has several connections, and
// what is said of lanes here is true of each connection.
//
// First the peer is asked, with a REVOKE on each lane that carried a GRANT of the key.
// There the REVOKE arrives behind the GRANT. When all those lanes have answered REVOKED,
// the peer posts nothing more with the key on any lane, and everything that it had posted
// has been sent.
//
// But that may not have arrived here yet: only on the lane that answered last does the
// answer arrive behind the operations. So the other lanes, if there are any, are flushed.
// Each gets a REVOKE and confirms it with a REVOKED, which arrives behind everything that
// was posted there.

// flush is a lane that has not confirmed yet, and the connection on which its flush was
// begun.
type flush struct {
	lane  *peer
	begun uint64
}

// tellRevoke asks for r's key at the lanes that were granted it, and retires r
// at once if there are none.
func (ks *keyTable) tellRevoke(r *region, keys []verbs.PeerKey) {
	e := ks.e
	e.st.C[stats.Revokes]++
	for _, k := range keys {
		switch p := e.peers.byKey[k]; {
		case p == nil: // same host: no operation is in flight between turns
			r.sock.cl.acct.grants -= r.exp.PeerRevoked(k)
		case !p.c.profile().grants:
			// It cannot be asked: the end of the registration is the end. An
			// operation of its that comes later costs it the connection.
			ks.gaveBack(r, p)
			e.peers.dropIfNew(p)
		default:
			p.asking++
		}
	}
	for _, k := range keys {
		if p := e.peers.byKey[k]; p != nil && r.exp.Waits(k) {
			e.peers.sendRevoke(p, wire.TypeRevoke, r.id, p.asking)
		}
	}
	for _, k := range keys {
		if p := e.peers.byKey[k]; p != nil && p.asking > 0 {
			p.asking = 0
			if !p.remote.attached() {
				ks.giveUp(r, p.remote)
			}
		}
	}
	if !ks.retireIfDead(r) {
		ks.pressFor(r)
	}
}

// pressFor has those who keep r's key too long broken off.
func (ks *keyTable) pressFor(r *region) {
	e := ks.e
	ks.revoking.Add(&r.inRevoking, r)
	if ks.pressAt == 0 {
		ks.pressAt = e.now + revokeScanNs
	}
	e.due.by(ks.pressAt)
}

// revoked takes a REVOKED that arrived on p.
func (ks *keyTable) revoked(p *peer, rkey uint32) {
	e := ks.e
	r := ks.by[rkey]
	if r == nil {
		return
	}
	ks.current(r, p.remote)
	switch {
	case r.flushed(p):
		ks.endIfFlushed(r, p.remote)
	case !r.exp.Waits(p.key) || r.flushing(p.remote):
		return // nobody asked
	case slices.ContainsFunc(p.lanes, func(q *peer) bool { return q != p && r.exp.Waits(q.key) }):
		ks.gaveBack(r, p)
	default:
		// p's place is kept until the others are flushed: then it has answered.
		for _, q := range p.lanes {
			if q != p && q.attached() {
				r.flush = append(r.flush, flush{q, q.begun})
				if q.c.State() == conn.Up {
					e.peers.sendRevoke(q, wire.TypeRevoke, rkey, 1)
				}
			}
		}
		ks.endIfFlushed(r, p.remote)
	}
	ks.retireIfDead(r)
}

// flushing reports whether lanes of h have yet to confirm.
func (r *region) flushing(h *remote) bool {
	return slices.ContainsFunc(r.flush, func(f flush) bool { return f.lane.remote == h })
}

// flushed notes that p has nothing on its way; false: it was not waited for.
func (r *region) flushed(p *peer) bool {
	i := slices.IndexFunc(r.flush, func(f flush) bool { return f.lane == p })
	if i >= 0 {
		r.flush = slices.Delete(r.flush, i, i+1)
	}
	return i >= 0
}

// endFlush waits for no lane of h any more.
func (r *region) endFlush(h *remote) {
	r.flush = slices.DeleteFunc(r.flush, func(f flush) bool { return f.lane.remote == h })
}

// endIfFlushed counts h as having answered when all its lanes have.
func (ks *keyTable) endIfFlushed(r *region, h *remote) {
	if !r.flushing(h) {
		for _, p := range h.lanes {
			ks.gaveBack(r, p)
		}
	}
}

// flushesGone drops the lanes of h whose connection is gone: nothing of it is on its
// way. It reports whether there were any.
func (r *region) flushesGone(h *remote) bool {
	n := len(r.flush)
	r.flush = slices.DeleteFunc(r.flush, func(f flush) bool {
		return f.lane.remote == h && (!f.lane.attached() || f.lane.begun != f.begun)
	})
	return len(r.flush) < n
}

// giveUp counts h, which no queue pair leads to any more, as having given r's
// key back: nothing it has posted can arrive. But it may not know that it has no
// key any more: on every connection from here on it is warned, before it can
// post an operation, until it has heard it on one. A GRANT that was posted and not
// acked does not go out again, for it could come behind the warning of another lane.
func (ks *keyTable) giveUp(r *region, h *remote) {
	ks.cancelGrants(r, h)
	told := r.flushing(h)
	r.endFlush(h)
	asked := false
	for _, p := range h.lanes {
		switch {
		case r.exp.Waits(p.key):
			ks.gaveBack(r, p)
			asked = asked || !slices.Contains(r.heard, p)
		case p.c.State() == conn.Connecting && !told:
			ks.e.peers.sendRevoke(p, wire.TypeRevoke, r.id, 1)
		}
	}
	if asked && !told {
		h.untoldAt++
		h.untoldOf[r.id] = h.untoldAt
		h.untold = append(h.untold, untoldKey{h.untoldAt, r.id})
	}
}

// warn queues REVOKEs of the keys that the peer may still believe in on a lane
// that is about to connect: HELLO's notice makes it wait for them. The only lane
// of a peer was asked for all of them anyway.
func (ks *keyTable) warn(p *peer) {
	h := p.remote
	if len(h.untold) == 0 || len(h.lanes) == 1 {
		return
	}
	for _, k := range h.untold {
		if k.n > p.warned && h.isUntold(k) {
			ks.e.peers.sendRevoke(p, wire.TypeRevoke, k.rkey, 1)
		}
	}
	p.warned = h.untoldAt
}

// heard notes that a REVOKE was received on p.
func (ks *keyTable) heard(p *peer, rkey uint32) {
	if r := ks.by[rkey]; r != nil && r.exp.Waits(p.key) {
		r.heard = append(r.heard, p)
	}
	h := p.remote
	delete(h.untoldOf, rkey)
	for len(h.untold) > 0 && !h.isUntold(h.untold[0]) {
		h.untold = h.untold[1:]
	}
}

// usedKey ends a use-once region when the message that chases its operation
// has arrived at the socket that owns it. All who hold the key are told, also
// the one that used it: a grant that crossed the use must not make the key good
// again.
//
// A socket of host, whose queue pairs who names, sent the message; this host is the zero Addr and 0. What
// a host says of a region that is not granted to it is nothing. From now on it may not touch the memory: all that the
// message chases has been done, and its daemon was to begin nothing else with the key.
func (ks *keyTable) usedKey(host netip.Addr, who verbs.PeerKey, s *socket, rkey uint32) {
	r := ks.by[rkey]
	if r == nil || r.sock != s || r.rights&abi.UseOnce == 0 || r.exp.State() != rdmaop.ExportLive {
		return
	}
	if !r.once.set || r.once.host != host {
		return
	}
	r.ended = true
	r.mr.Disallow(who)
	ks.releaseRegion(r)
}

// tickRegions breaks off every queue pair of the peers that keep a revoked key
// too long: then they cannot use it either.
func (ks *keyTable) tickRegions() {
	e := ks.e
	if ks.pressAt == 0 || e.now < ks.pressAt {
		e.due.by(ks.pressAt)
		return
	}
	ks.pressAt = 0
	ks.revoking.Begin()
	e.chores.Begin(&ks.pressing)
	if ks.revoking.N > 0 {
		ks.pressAt = e.now + revokeScanNs
		e.due.by(ks.pressAt)
	}
}

// pressNext is the chore that does that, for the next region whose key is being taken back.
func (ks *keyTable) pressNext() bool {
	e := ks.e
	r := ks.revoking.Next()
	if r == nil {
		return false
	}
	if at, ok := r.exp.Deadline(); !ok || e.now < at {
		return true
	}
	for i := len(r.grantees) - 1; i >= 0; i-- {
		ks.current(r, r.grantees[i].h)
	}
	e.chores.Spend(len(r.exp.Waiting()))
	if ks.mayBeLate(r) {
		return true
	}
	for _, k := range r.exp.Timeout(nil, e.now) {
		switch p := e.peers.byKey[k]; {
		case p == nil:
		case r.flushing(p.remote): // the key was given back
			ks.breakFlushes(r, p.remote)
		default:
			ks.breakOff(p.remote)
			r.mr.Disallow(p.who)
			ks.giveUp(r, p.remote)
		}
	}
	ks.retireIfDead(r)
	return true
}

// mayBeLate reports whether one who has not given r's key back is held by us: its
// answer waits unread.
func (ks *keyTable) mayBeLate(r *region) bool {
	e := ks.e
	at, ok := r.exp.Deadline()
	if !ok || e.now < at || e.now-at >= (heldRevokes-1)*e.cfg.RevokeTimeout {
		return false
	}
	for _, k := range r.exp.Waiting() {
		if p := e.peers.byKey[k]; p != nil && e.throttle.excused(p.remote) {
			return true
		}
	}
	return false
}

// breakFlushes breaks off those connections of h that have not confirmed that nothing is on its way. When
// they are gone, r's flush is done.
func (ks *keyTable) breakFlushes(r *region, h *remote) {
	for _, f := range slices.Clone(r.flush) {
		if p := f.lane; p.remote == h && p.c.State() == conn.Up && p.begun == f.begun {
			p.c.Reset(ks.e.now, errRevokeTimeout)
		}
	}
}

// breakOff breaks off all connections of h that are up.
func (ks *keyTable) breakOff(h *remote) {
	for _, p := range h.lanes {
		if p.c.State() == conn.Up {
			p.c.Reset(ks.e.now, errRevokeTimeout)
		}
	}
}
