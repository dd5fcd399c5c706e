package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/verbs"
)

// What an engine has of other hosts is handed over behind what it has of users and
// processes: first the hosts with their lanes, then whom each region is granted to. What
// follows from that is made anew: allowances, grantees and the counts of grants.

// errNotStill says that an engine has something of a peer that it cannot have while it
// stands still.
var errNotStill = errors.New("engine: handed over with a peer that does not stand still")

const (
	mostHosts = 1 << 24 // in a state
	mostCtls  = 1 << 24 // of a lane in a state
	mostState = 1 << 30 // bytes of one record of another package
	mostText  = 1 << 10 // bytes of an error or an event
)

// encodeRemotes writes what the engine has of other hosts. number names the messages of
// clients that connections have.
func (e *Engine) encodeRemotes(w *handover.Writer, number func(*conn.Msg) uint32) error {
	w.Begin(handover.TagRemotes)
	hosts := slices.SortedFunc(maps.Values(e.peers.hosts), func(a, b *remote) int { return cmp.Compare(a.who, b.who) })
	w.Count(len(hosts))
	for _, h := range hosts {
		if err := e.encodeRemote(w, h, number); err != nil {
			return fmt.Errorf("%v: %w", h.addr, err)
		}
	}
	if err := e.encodeExports(w); err != nil {
		return err
	}
	w.End()
	return nil
}

// adoptRemotes reads what encodeRemotes wrote. Clock, keys, addresses, accounts, regions and
// the messages that find finds were adopted before.
func (e *Engine) adoptRemotes(r *handover.Reader, find func(uint32) *conn.Msg) {
	r.Begin(handover.TagRemotes)
	used := map[verbs.PeerKey]bool{}
	for _, l := range e.addrs.all {
		used[l.key] = true
	}
	for range r.Count(mostHosts, 4+4+8+8+8+8+4+4+4+8+4) {
		if e.adoptRemote(r, used, find); r.Err() != nil {
			return
		}
	}
	e.adoptExports(r)
	r.End()
}

func (e *Engine) encodeRemote(w *handover.Writer, h *remote, number func(*conn.Msg) uint32) error {
	if len(h.owed) > 0 || h.unfinished > 0 {
		return errNotStill
	}
	grants, err := h.grants.Encode(w.Version())
	if err != nil {
		return err
	}
	us, instance, met, past := h.us, h.instance, h.met, h.past
	if mutant.On(mutant.HandoverUs) {
		us++
	}
	if mutant.On(mutant.HandoverMet) {
		instance, met, past = 0, 0, nil
	}
	if mutant.On(mutant.HandoverPast) {
		past = nil
	}
	w.Addr(h.local.addr)
	w.Addr(h.addr)
	w.U64(uint64(h.who))
	w.U64(us)
	w.U64(instance)
	w.U64(met)
	w.Blob(grants)
	w.Count(len(past))
	for _, lane := range slices.Sorted(maps.Keys(past)) {
		p := past[lane]
		w.U8(lane)
		w.U64(p.Peer)
		w.U64(p.RxLast)
		w.U64(p.NextTx)
	}
	var untold []untoldKey
	for _, k := range h.untold {
		if h.isUntold(k) && !mutant.On(mutant.HandoverUntold) {
			untold = append(untold, k)
		}
	}
	w.U64(h.untoldAt)
	w.Count(len(untold))
	for _, k := range untold {
		w.U64(k.n)
		w.U32(k.rkey)
	}
	if w.Version() >= 2 {
		e.encodeRation(w, h)
	}
	w.Count(len(h.lanes))
	for _, p := range h.lanes {
		if err := e.encodePeer(w, p, number); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) adoptRemote(r *handover.Reader, used map[verbs.PeerKey]bool, find func(uint32) *conn.Msg) {
	l, addr := e.localOf(r), r.Addr()
	who, us := verbs.PeerKey(r.U64()), r.U64()
	instance, met := r.U64(), r.U64()
	switch {
	case r.Err() != nil:
	case !mayBePeer(l, addr) || e.addrs.by[addr] != nil || e.peers.hosts[remoteKey{l.addr, addr}] != nil:
		r.Fail("%v is no peer of %v, or is there twice", addr, l.addr)
	case who == 0 || who%keysEach != 0 || who > e.peers.nextKey || used[who]:
		r.Fail("%v has key %d of %d, or another has it", addr, who, e.peers.nextKey)
	case us == 0 || met > e.clock || (instance == 0) != (met == 0):
		r.Fail("instance %d of %v was met at %d of %d, by instance %d", instance, addr, met, e.clock, us)
	}
	if r.Err() != nil {
		return
	}
	used[who] = true
	h := e.newRemote(l, addr, who, us)
	h.instance, h.met = instance, met
	if err := h.grants.Adopt(r.Blob(mostState)); err != nil {
		r.Fail("what %v grants: %v", addr, err)
	}
	for range r.Count(keysEach, 1+8+8+8) {
		lane, past := r.U8(), conn.Past{Peer: r.U64(), RxLast: r.U64(), NextTx: r.U64()}
		if _, twice := h.past[lane]; twice || past.Peer != instance || past.Peer == 0 || past.NextTx == 0 {
			r.Fail("lane %d of %v was forgotten with instance %d, or twice", lane, addr, past.Peer)
			return
		}
		if h.past == nil {
			h.past = map[uint8]conn.Past{}
		}
		h.past[lane] = past
	}
	e.adoptUntold(r, h)
	if r.Version() >= 2 {
		e.adoptRation(r, h)
	}
	n := r.Count(keysEach, 1+8+8+8+2)
	if n == 0 {
		r.Fail("%v without a lane", addr)
	}
	for range n {
		if e.adoptPeer(r, h, find); r.Err() != nil {
			return
		}
	}
}

// adoptUntold reads the keys that h may not know to have been taken back.
func (e *Engine) adoptUntold(r *handover.Reader, h *remote) {
	h.untoldAt = r.U64()
	last := uint64(0)
	for range r.Count(mostHosts, 8+4) {
		k := untoldKey{r.U64(), r.U32()}
		if _, twice := h.untoldOf[k.rkey]; twice || k.n <= last || k.n > h.untoldAt {
			r.Fail("key %#x, untold as number %d of %d behind %d, or twice", k.rkey, k.n, h.untoldAt, last)
			return
		}
		last = k.n
		h.untoldOf[k.rkey] = k.n
		h.untold = append(h.untold, k)
	}
}

// encodeExports writes whom the regions are granted to, in the order of the regions.
func (e *Engine) encodeExports(w *handover.Writer) error {
	w.Count(e.keys.all.N)
	for at := e.keys.all.Head; at != nil; at = at.Next {
		g := at.Of
		if len(g.flush) > 0 {
			return errNotStill
		}
		state, err := g.exp.Encode(w.Version())
		if err != nil {
			return err
		}
		w.U32(g.id)
		w.Blob(state)
		w.Count(len(g.heard))
		for _, p := range g.heard {
			w.U64(uint64(p.key))
		}
	}
	return nil
}

func (e *Engine) adoptExports(r *handover.Reader) {
	here := map[verbs.PeerKey]bool{}
	for _, l := range e.addrs.all {
		here[l.key] = true
	}
	known := func(k verbs.PeerKey) bool { return here[k] || e.peers.byKey[k] != nil }
	if n := r.Count(maxRegions, 4+4+4); r.Err() == nil && n != e.keys.all.N {
		r.Fail("grants of %d regions, not of %d", n, e.keys.all.N)
	}
	for at := e.keys.all.Head; at != nil && r.Err() == nil; at = at.Next {
		g := at.Of
		if id := r.U32(); id != g.id {
			r.Fail("grants of region %#x, not of %#x", id, g.id)
			return
		}
		if err := g.exp.Adopt(r.Blob(mostState), known); err != nil {
			r.Fail("grants of region %#x: %v", g.id, err)
			return
		}
		for range r.Count(keysEach*mostHosts, 8) {
			p := e.peers.byKey[verbs.PeerKey(r.U64())]
			if p == nil {
				r.Fail("a lane that is not there has heard of region %#x", g.id)
				return
			}
			g.heard = append(g.heard, p)
		}
		e.grantedAgain(g)
	}
}

// grantedAgain counts g's grants, and has its memory open for those who have some.
func (e *Engine) grantedAgain(g *region) {
	g.exp.Each(func(k verbs.PeerKey, _ uint16) {
		p := e.peers.byKey[k] // nil: of this host
		e.granted(g, p, 1)
		if p != nil && !g.ended {
			g.mr.Allow(p.who)
		}
	})
	if _, asked := g.exp.Deadline(); asked || len(g.exp.Waiting()) > 0 {
		g.sock.regions.Del(&g.inSock)
		e.askGrantees(g)
		e.pressFor(g)
	}
}
