package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/verbs"
)

// What an engine has of other hosts is handed over behind what it has of users and
// processes: first the hosts with their lanes, then whom each region is granted to. What
// follows from that is made anew: allowances, grantees and the counts of grants.

// errNotStill says that an engine has something of a peer that it cannot have while it
// stands still.
var errNotStill = errors.New("engine: handed over with a peer that does not stand still")

// ErrPaths says that a daemon that knows one path cannot take over.
var ErrPaths = errors.New("it is, or may be, reached by several paths, and the other daemon knows one: restart the daemon instead")

const (
	mostHosts = 1 << 24 // in a state
	mostCtls  = 1 << 24 // of a lane in a state
	mostState = 1 << 30 // bytes of one record of another package
	mostText  = 1 << 10 // bytes of an error or an event
)

// handOverRemotes has what the engine has of other hosts go over. Clock, keys, addresses, accounts, regions
// and the messages that find finds went before.
func (x *crossing) handOverRemotes() {
	s := x.s
	hosts := slices.SortedFunc(maps.Values(x.peers.hosts), func(a, b *remote) int { return cmp.Compare(a.who, b.who) })
	used, here := map[verbs.PeerKey]bool{}, map[verbs.PeerKey]bool{}
	for _, l := range x.addrs.all {
		used[l.key], here[l.key] = true, true
	}
	for i := range s.Count(len(hosts), mostHosts, 4+4+8+8+8+8+4+4+4+8+4) {
		if x.handOverRemote(handover.Nth(s, hosts, i), used); s.Err() != nil {
			return
		}
	}
	known := func(k verbs.PeerKey) bool { return here[k] || x.peers.byKey[k] != nil }
	if n := s.Count(x.keys.all.N, maxRegions, 4+4+4); n != x.keys.all.N {
		s.Fail("grants of %d regions, not of %d", n, x.keys.all.N)
	}
	for at := x.keys.all.Head; at != nil && s.Err() == nil; at = at.Next {
		x.handOverExport(at.Of, known)
	}
}

// handOverRemote has a host go over: h, if it is written. used are the keys that are given.
func (x *crossing) handOverRemote(h *remote, used map[verbs.PeerKey]bool) {
	s := x.s
	var local, addr netip.Addr
	var who verbs.PeerKey
	var us, instance, met uint64
	var past map[lanePath]conn.Past
	if !s.Reads() {
		if len(h.owed) > 0 || h.unfinished > 0 {
			s.Refuse(fmt.Errorf("%v: %w", h.addr, errNotStill))
		}
		local, addr, who, us, instance, met, past = h.local.addr, h.addr, h.who, h.us, h.instance, h.met, h.past
	}
	s.Addr(&local)
	s.Addr(&addr)
	s.U64((*uint64)(&who))
	s.U64(&us)
	s.U64(&instance)
	s.U64(&met)
	if s.Reads() {
		if h = x.adoptRemote(local, addr, who, us, instance, met, used); h == nil {
			return
		}
	}
	if err := s.Inner(mostState, h.grants.Encode, h.grants.Adopt); err != nil {
		s.Refuse(fmt.Errorf("what %v grants: %w", addr, err))
	}
	x.handOverPaths(h)
	x.handOverPast(h, past)
	x.handOverUntold(h)
	if s.Version() >= 2 {
		x.handOverRation(h)
	}
	n := s.Count(len(h.lanes), keysEach*wire.MaxPaths, 1+8+8+8+2)
	if n == 0 {
		s.Fail("%v without a lane", addr)
	}
	for i := range n {
		if x.handOverPeer(h, handover.Nth(s, h.lanes, i)); s.Err() != nil {
			return
		}
	}
}

// adoptRemote makes a host. It returns nil after an error.
func (x *crossing) adoptRemote(local, addr netip.Addr, who verbs.PeerKey, us, instance, met uint64, used map[verbs.PeerKey]bool) *remote {
	if x.s.Err() != nil {
		return nil
	}
	l := x.localOf(local)
	switch {
	case l == nil:
	case !mayBePeer(l, addr) || x.addrs.by[addr] != nil || x.peers.hosts[remoteKey{l.addr, addr}] != nil:
		x.s.Fail("%v is no peer of %v, or is there twice", addr, l.addr)
	case who == 0 || who%keysEach != 0 || who > x.peers.nextKey || used[who]:
		x.s.Fail("%v has key %d of %d, or another has it", addr, who, x.peers.nextKey)
	case us == 0 || met > x.clock || (instance == 0) != (met == 0):
		x.s.Fail("instance %d of %v was met at %d of %d, by instance %d", instance, addr, met, x.clock, us)
	}
	if x.s.Err() != nil {
		return nil
	}
	used[who] = true
	h := x.peers.newRemote(l, addr, who, us)
	h.instance, h.met = instance, met
	return h
}

// handOverPaths has go over how many paths lead to h, and how many this daemon wants, which stays for its instance whatever
// the settings are now. h may know more of them than this one: if it wants several, they may be in use.
func (x *crossing) handOverPaths(h *remote) {
	s := x.s
	switch {
	case s.Version() >= 7:
		s.U8(&h.wantsPaths)
		if s.U8(&h.paths); h.wantsPaths == 0 || h.wantsPaths > wire.MaxPaths || h.paths > h.wantsPaths || h.paths == 0 && h.instance != 0 {
			s.Fail("%d paths to %v, of %d", h.paths, h.addr, h.wantsPaths)
		}
	case s.Reads():
		h.oneWay()
	case h.paths != 1:
		s.Refuse(fmt.Errorf("%v: %w", h.addr, ErrPaths))
	}
}

// handOverLane has the place of a connection go over.
func (x *crossing) handOverLane(at *lanePath) {
	lane, path := uint8(*at), uint8(*at>>8)
	x.s.U8(&lane)
	if x.s.Version() >= 7 {
		x.s.U8(&path)
	} else if path > 0 {
		x.s.Refuse(ErrPaths)
	}
	if *at = lanePath(lane).in(path); path >= wire.MaxPaths {
		x.s.Fail("path %d", path)
	}
}

// handOverPast has the lanes go over that were forgotten: past, if they are written.
func (x *crossing) handOverPast(h *remote, past map[lanePath]conn.Past) {
	s := x.s
	lanes := lists.Sorted(maps.Keys(past))
	for i := range s.Count(len(lanes), keysEach*wire.MaxPaths, 1+8+8+8) {
		lane := handover.Nth(s, lanes, i)
		p := past[lane]
		x.handOverLane(&lane)
		s.U64(&p.Peer)
		s.U64(&p.RxLast)
		if s.U64(&p.NextTx); !s.Reads() {
			continue
		}
		if _, twice := h.past[lane]; twice || p.Peer != h.instance || p.Peer == 0 || p.NextTx == 0 {
			s.Fail("lane %d of %v was forgotten with instance %d, or twice", lane, h.addr, p.Peer)
			return
		}
		if h.past == nil {
			h.past = map[lanePath]conn.Past{}
		}
		h.past[lane] = p
	}
}

// handOverUntold has the keys go over that h may not know to have been taken back.
func (x *crossing) handOverUntold(h *remote) {
	s, last := x.s, uint64(0)
	var untold []untoldKey
	for _, k := range h.untold {
		if h.isUntold(k) {
			untold = append(untold, k)
		}
	}
	s.U64(&h.untoldAt)
	for i := range s.Count(len(untold), mostHosts, 8+4) {
		k := handover.Nth(s, untold, i)
		s.U64(&k.n)
		if s.U32(&k.rkey); !s.Reads() {
			continue
		}
		if _, twice := h.untoldOf[k.rkey]; twice || k.n <= last || k.n > h.untoldAt {
			s.Fail("key %#x, untold as number %d of %d behind %d, or twice", k.rkey, k.n, h.untoldAt, last)
			return
		}
		last = k.n
		h.untoldOf[k.rkey] = k.n
		h.untold = append(h.untold, k)
	}
}

// handOverExport has go over whom a region is granted to.
func (x *crossing) handOverExport(g *region, known func(verbs.PeerKey) bool) {
	s, id := x.s, g.id
	if len(g.flush) > 0 {
		s.Refuse(errNotStill)
	}
	if s.U32(&id); id != g.id {
		s.Fail("grants of region %#x, not of %#x", id, g.id)
	}
	if err := s.Inner(mostState, g.exp.Encode, func(state []byte) error { return g.exp.Adopt(state, known) }); err != nil {
		s.Refuse(fmt.Errorf("grants of region %#x: %w", g.id, err))
	}
	for i := range s.Count(len(g.heard), keysEach*mostHosts, 8) {
		p, key := handover.Nth(s, g.heard, i), verbs.PeerKey(0)
		if !s.Reads() {
			key = p.key
		}
		if s.U64((*uint64)(&key)); !s.Reads() {
			continue
		}
		if p = x.peers.byKey[key]; p == nil {
			s.Fail("a lane that is not there has heard of region %#x", g.id)
			return
		}
		g.heard = append(g.heard, p)
	}
	if s.Reads() && s.Err() == nil {
		x.grantedAgain(g)
	}
}

// grantedAgain counts g's grants, and has its memory open for those who have some.
func (e *Engine) grantedAgain(g *region) {
	g.exp.Each(func(k verbs.PeerKey, _ uint16) {
		g.sock.cl.acct.grants++
		p := e.peers.byKey[k]
		if p == nil { // of this host
			return
		}
		if e.keys.noteGrants(g, p, 1); !g.ended {
			g.mr.Allow(p.who)
		}
	})
	if _, asked := g.exp.Deadline(); asked || len(g.exp.Waiting()) > 0 {
		g.sock.regions.Del(&g.inSock)
		e.keys.askGrantees(g)
		e.keys.pressFor(g)
	}
}
