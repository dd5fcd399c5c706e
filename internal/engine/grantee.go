package engine

import (
	"cmp"
	"github.com/rdsd/rdsd/internal/chores"
	"slices"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/verbs"
)

// When a peer's daemon or one of its connections ends, that concerns only the regions that
// the peer was granted. So each pair of a region and a peer with grants of it has a record,
// which is on a list of both. Both ends are chores, because a peer can have grants of any
// number of regions.

// grantee is the grants of one region that one peer has.
type grantee struct {
	r     *region
	h     *remote
	n     int        // how many
	of    *allowance // h's, when the first was made
	asked bool       // the key is being taken back
	in    lists.Link[grantee]
}

// allowance is the grants of one instance of a peer's daemon.
type allowance struct {
	shares shares        // of its table of what we allow it
	lanes  map[*peer]int // grants made on a connection, by connections that have some
	live   chores.Rounds[grantee]
	asked  chores.Rounds[grantee]

	void    bool         // the instance is gone, and its grants are being ended
	voiding chores.Chore // of both
	looking chores.Chore // at asked, after a connection has gone
}

// keysEach is how many keys an address of a peer has: its own, and one for each
// lane of path 0 behind it.
const keysEach = 1 + 256

func (ks *keyTable) newKeys() verbs.PeerKey {
	e := ks.e
	e.peers.nextKey += keysEach
	return e.peers.nextKey
}

func (ks *keyTable) newAllowance() *allowance {
	s := &allowance{lanes: map[*peer]int{}}
	s.voiding.One = func() bool { return ks.voidNext(s) }
	s.looking.One = func() bool { return ks.lookNext(s) }
	return s
}

// find returns where r's record of h is, or would be.
func (r *region) find(h *remote) (int, bool) {
	return slices.BinarySearchFunc(r.grantees, h.who, func(x *grantee, k verbs.PeerKey) int { return cmp.Compare(x.h.who, k) })
}

func (x *grantee) list() *chores.Rounds[grantee] {
	if x.asked {
		return &x.of.asked
	}
	return &x.of.live
}

// noteGrants notes n more grants of r on the lane p, fewer if n is negative.
func (ks *keyTable) noteGrants(r *region, p *peer, n int) {
	h := p.remote
	i, ok := r.find(h)
	if !ok {
		x := ks.grantees.Get()
		*x = grantee{r: r, h: h, of: h.allowance}
		r.grantees = slices.Insert(r.grantees, i, x)
		x.of.live.Add(&x.in, x)
	}
	x := r.grantees[i]
	if x.of.lanes[p] += n; x.of.lanes[p] == 0 {
		delete(x.of.lanes, p)
	}
	ks.addGrants(x, n)
}

// addGrants notes that x is n more grants, and ends it with the last one.
func (ks *keyTable) addGrants(x *grantee, n int) {
	x.n += n
	x.of.shares.count(x.r.sock.cl.acct, n)
	if x.n > 0 {
		return
	}
	r := x.r
	i, _ := r.find(x.h)
	x.list().Del(&x.in)
	r.grantees = slices.Delete(r.grantees, i, i+1)
	*x = grantee{}
	ks.grantees.Put(x)
}

// exposed reports whether the peer's daemon has a grant that was made on p.
func (p *peer) exposed() bool { return p.allowance.lanes[p] > 0 }

// askGrantees has all grantees of r listed among those who are asked for its key.
func (ks *keyTable) askGrantees(r *region) {
	for i := len(r.grantees) - 1; i >= 0; i-- {
		x := r.grantees[i]
		if x.of.void {
			ks.void(x)
			continue
		}
		x.list().Del(&x.in)
		x.asked = true
		x.list().Add(&x.in, x)
	}
}

// voidAllowance ends all that the instance of h's daemon that is known was granted.
// What is asked about one of its regions before its turn has come finds it ended,
// see current.
func (ks *keyTable) voidAllowance(h *remote) *chores.Chore {
	s := h.allowance
	h.allowance = ks.newAllowance()
	s.void = true
	return &s.voiding
}

// voidNext ends the next of s; false: there was none.
func (ks *keyTable) voidNext(s *allowance) bool {
	for _, l := range []*chores.Rounds[grantee]{&s.live, &s.asked} {
		if l.N > 0 {
			ks.e.chores.Spend(l.Head.Of.n)
			ks.void(l.Head.Of)
			return true
		}
	}
	return false
}

// void ends what a former instance of a peer's daemon has of a region.
func (ks *keyTable) void(x *grantee) {
	r, h := x.r, x.h
	r.mr.Disallow(h.who)
	r.endFlush(h)
	if r.rights&abi.UseOnce != 0 && x.n > r.unsent(h) {
		r.spent = true // the old instance may have used it
	}
	for path := range verbs.PeerKey(wire.MaxPaths) {
		r.exp.PeersGone(path*pathKeys+h.who, path*pathKeys+h.who+keysEach)
	}
	r.sock.cl.acct.grants -= x.n
	ks.addGrants(x, -x.n)
	ks.retireIfDead(r)
}

// current ends what a former instance of h's daemon has of r.
func (ks *keyTable) current(r *region, h *remote) {
	if i, ok := r.find(h); ok && r.grantees[i].of.void {
		ks.void(r.grantees[i])
	}
}

// revokeDown sees to the keys that were asked for at p, whose queue pair is
// gone: nothing of it can touch a region any more. A lane that had to confirm
// has. An answer is still owed where other lanes are there to use the key: it
// comes on p's next connection.
func (ks *keyTable) revokeDown(p *peer) {
	if s := p.allowance; s.asked.N > 0 {
		s.asked.Begin()
		ks.e.chores.Begin(&s.looking)
	}
}

// lookNext does that for the next region. The connection may be there again by
// then: the REVOKE that it was sent is sent again, and is answered.
func (ks *keyTable) lookNext(s *allowance) bool {
	x := s.asked.Next()
	if x == nil {
		return false
	}
	r, h := x.r, x.h
	if r.flushesGone(h) {
		ks.endIfFlushed(r, h)
	}
	if !h.attached() {
		ks.giveUp(r, h)
	}
	ks.retireIfDead(r)
	return true
}
