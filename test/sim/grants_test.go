package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

var grantScenario = &scenario{
	name: "grants",
	options: func(r *rand.Rand, o *options) {
		o.hosts, o.clients, o.users, o.sockets = 2+r.IntN(2), 3, 2, 1+r.IntN(2)
		o.maxGrants, o.quotaGrants = pick(r, 2, 3, 6, 12), pick(r, 0, 0, 3, 8)
		o.quotaBytes, o.quotaOps, o.offers, o.opShare = 0, 0, 15, 30
		o.hole, o.giveUp = 0, 0
	},
	play: func(w *world) {
		w.run()
		w.regrant()
	},
	seen: []string{"Expose refused for a reason", "half the table was one user's", "the peer's table was full", "used again"},
}

// TestSimGrants has processes of two users compete for tables of few grants, under all faults.
// No table and no user's share is exceeded. Every refusal has a reason, and the owner is
// notified of it. When all grants are given back, every user gets its share anew.
func TestSimGrants(t *testing.T) { grantScenario.test(t) }

// tableSize returns how many grants a peer can make h's daemon remember. Hosts differ in it.
func (h *host) tableSize() int { return h.w.opt.maxGrants * (1 + h.n%2) }

// regrant takes all regions back and fills the tables anew, without faults.
func (w *world) regrant() {
	w.over = true
	w.net.Faults, w.net.Hook = sim.Faults{}, nil
	w.drain()
	w.giveAllBack()
	for _, from := range w.hosts {
		for _, to := range w.hosts {
			if from != to && len(from.clients) > 1 && len(from.clients[0].eps)*len(from.clients[1].eps) > 0 {
				w.fill(from, to)
			}
		}
	}
}

// giveAllBack releases every region and checks that no table has anything left.
func (w *world) giveAllBack() {
	for _, e := range append([]*endpoint{}, w.eps...) {
		for len(e.regions) > 0 {
			e.regions[0].release()
		}
	}
	w.drain()
	for _, h := range w.hosts {
		h.checkNoGrants()
	}
}

// checkNoGrants checks, when all regions were released, that no grant of h's counts as given, and
// that h knows of none. What a daemon had granted before it restarted stays known until it is
// met again.
func (h *host) checkNoGrants() {
	engine.EachTable(h.e, func(remote netip.Addr, given, _, known int) {
		if given > 0 || known > 0 && engine.Knows(h.e, h.addr, remote, h.w.hostOf(remote).e) {
			broken("leak", "host %d and %v: all regions were released, %d grants count as given and %d are known", h.n, remote, given, known)
		}
	})
}

// fill has two users grant regions to a socket of another host until a grant is refused. When
// there is room again, it uses one region of each user.
func (w *world) fill(from, to *host) {
	var user *endpoint
	for _, e := range w.eps {
		if e.h == to {
			user = e
		}
	}
	if user == nil {
		return
	}
	w.touch(from.clients[0].eps[0], user)
	all, told := 0, w.told(from)
	for _, c := range from.clients[:2] {
		there, had := c.at.GrantsOf(from.addr, to.addr) // both sockets may be of one user
		own := 0
		for w.grantTo(c.eps[0], user) {
			own, all = own+1, all+1
		}
		// A user gets one more grant while it has fewer than there are free, and its quota has
		// room.
		want := 0
		for free := from.tableSize() - (all - own); there+want < free-want && (w.opt.quotaGrants == 0 || had+want < w.opt.quotaGrants); {
			want++
		}
		if own != want {
			broken("quota", "uid %d of host %d granted %d regions to a host with %d of %d given, want %d", c.uid, from.n, own, all-own, from.tableSize(), want)
		}
		if 2*(there+own) >= from.tableSize() {
			w.saw("half the table was one user's")
		}
	}
	w.drain()
	if over := max(all-to.tableSize(), 0); int(w.told(from)-told) < over {
		broken("notice", "%d grants of %d found no room at host %d, %d were told", over, all, to.n, w.told(from)-told)
	} else if over > 0 {
		w.saw("the peer's table was full")
	}
	w.giveAllBack()
	for _, c := range from.clients[:2] {
		if !w.grantTo(c.eps[0], user) {
			broken("quota", "uid %d of host %d gets no grant though all are free", c.uid, from.n)
		}
		w.drain()
		r := w.regions[len(w.regions)-1]
		o := &op{w: w, token: uint64(len(w.ops) + 1), e: user, r: r, kind: abi.OpWrite, n: 20, off: r.next}
		o.flags.Notify = true
		if !user.post(r.e.ap, 10, extra{ops: []*op{o}}) {
			broken("liveness", "an operation cannot be sent though all is quiet: %v", w.sendErr)
		}
		w.drain()
		if o.fate == nil || o.fate.Status != rds.Success {
			broken("quota", "a region that was granted when there was room cannot be used: %+v", o.fate)
		}
		w.saw("used again")
		w.giveAllBack()
	}
}

// touch sends a message from a to b, because a grant needs a connection.
func (w *world) touch(a, b *endpoint) {
	if a.send(b.ap, min(w.opt.sndBuf, 20), extra{}) == nil {
		broken("liveness", "%v cannot send to %v though all is quiet: %v", a.ap, b.ap, w.sendErr)
	}
	w.drain()
}

// told counts the NotGranted notices of the sockets of h.
func (w *world) told(h *host) (n uint64) {
	for _, e := range w.eps {
		if e.h == h {
			n += e.ungranted
		}
	}
	return n
}

// grantTo registers a region of e and grants it to a socket. It returns false if the grant was
// refused.
func (w *world) grantTo(e, user *endpoint) bool {
	r := e.register(100, rds.AllowWrite)
	r.offered[user.ap] = true
	e.offersOnce(r, user.ap)
	err := r.r.Expose(&turning{Context: context.Background(), h: e.h}, user.ap)
	if errors.Is(err, syscall.ENOBUFS) {
		return false
	}
	must(err)
	return true
}

// TestNoGrants shows that checkNoGrants finds what either side keeps of a grant, and allows
// what has to be kept: the grants of a daemon that has restarted and was not met since.
func TestNoGrants(t *testing.T) {
	s := newScript(t)
	defer s.explain()
	a, b := s.a.h, s.b.h // b has granted s.r to two sockets of a
	s.touch(s.a, s.b)    // a has a destination there, so it does not forget b
	for _, h := range []*host{a, b} {
		if rule := ruleOf(h.checkNoGrants); rule != "leak" {
			t.Errorf("host %d and a region that is not released: broken rule %q, want leak", h.n, rule)
		}
	}
	b.crash()
	s.drain()
	s.known(a, 2)
	a.checkNoGrants()
	b.checkNoGrants()
	s.touch(s.a, b.clients[0].eps[0])
	s.known(a, 0)
	s.finish()
}

// known checks how many grants h knows of.
func (s *script) known(h *host, want int) {
	s.t.Helper()
	got := 0
	engine.EachTable(h.e, func(_ netip.Addr, _, _, n int) { got += n })
	if got != want {
		s.t.Errorf("host %d knows of %d grants, want %d", h.n, got, want)
	}
}

// TestGrantedMeanwhile has a socket use a region, and another process of the host grant it before
// their daemon has taken the operation. The daemon takes the grant first, so the operation runs.
func TestGrantedMeanwhile(t *testing.T) {
	s := newScriptWith(t, 1, func(o *options) { o.clients = 2 })
	defer s.explain()
	owner, user := s.eps[2], s.eps[0] // in this turn the daemon looks at the owner's process first
	s.touch(owner, user)              // a first message would have the daemon turn
	s.touch(user, owner)
	r := owner.register(100, rds.AllowWrite)
	o := &op{w: s.world, token: uint64(len(s.world.ops) + 1), e: user, r: r, kind: abi.OpWrite, n: 20, off: r.next}
	o.flags.Notify = true
	if !user.post(owner.ap, 10, extra{ops: []*op{o}}) {
		t.Fatal(s.sendErr)
	}
	r.offered[user.ap] = true
	owner.send(user.ap, 20, extra{cookie: r.r.Cookie(), tells: r})
	s.drain()
	if o.fate == nil || o.fate.Status != rds.Success {
		t.Errorf("%+v, want SUCCESS", o.fate)
	}
	s.finish()
}
