package engine

import (
	"bytes"
	"github.com/rdsd/rdsd/internal/chores"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// still has engine i stand still.
func (w *world) still(i int) {
	w.t.Helper()
	w.es[i].Halt()
	for n := 0; !w.es[i].Halted(); n++ {
		w.turnAll()
		if !w.net.Step() {
			w.net.At(w.net.Now()+1_000_000, func() {})
		}
		if n > 1_000_000 {
			w.t.Fatal("never stands still")
		}
	}
}

// peersOf is what e hands over of other hosts. None of its clients has a message.
func peersOf(t *testing.T, e *Engine) []byte {
	t.Helper()
	return peersIn(t, e, handover.Newest)
}

// heirOf is an engine on the same host in the place of old, which stands still. It has what
// other parts of the hand-over bring, as far as peers depend on it: regions, of a process of
// its own, at the same places of its memory.
func (w *world) heirOf(i int, old *Engine, c Config) (e *Engine, owner *opSide) {
	w.t.Helper()
	_ = old.devices.rails[0].dev.Close()
	e = w.boot(i, old.cfg.Instance, c)
	w.es[i] = e
	owner = w.opSide(i, 30)
	e.now, e.clock, e.peers.nextKey, e.keys.numbered = old.now, old.clock, old.peers.nextKey, old.keys.numbered
	e.addrs.all[0].key = old.addrs.all[0].key
	e.halt.stage = haltStill
	for at := old.keys.all.Head; at != nil; at = at.Next {
		o, s := at.Of, e.addrs.all[0].ports.Get(30)
		b := owner.cl.buffers[owner.buf]
		g := &region{id: o.id, number: o.number, sock: s, buf: b, off: o.off, n: o.n, cookie: o.cookie, rights: o.rights, once: o.once}
		var err error
		g.mr, err = e.devices.rails[0].pd.(verbs.Keyed).RegMRKey(b.mem[g.off:][:g.n], g.cookie>>32,
			verbs.AccessRestricted|verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead, g.id)
		if err != nil {
			w.t.Fatal(err)
		}
		b.users++
		s.inc = o.sock.inc // operations mean it
		e.keys.by[g.id] = g
		g.sock.cl.acct.regions++
		e.keys.all.Add(&g.inAll, g)
		s.regions.Add(&g.inSock, g)
	}
	return e, owner
}

func adoptPeers(e *Engine, state []byte) error {
	r, err := handover.Read(state)
	if err != nil {
		return err
	}
	x := &crossing{Engine: e, s: r}
	x.section(handover.TagRemotes, x.handOverRemotes)
	return r.Close()
}

// partingConfig is of both. Each may send much more than it does.
var partingConfig = Config{Silence: -1, SendBufs: 64, RecvBufs: 512, Rates: Rates{Control: 1 << 20, Messages: 1 << 20}}

// parting is two hosts that have something of all that is handed over of peers. Engine 0
// stands still.
type parting struct {
	*world
	old    *Engine
	h      *remote // of host 1 at engine 0
	user   *opSide // of host 1
	region uint32  // of host 0, granted to user
	theirs uint64  // cookie of user's region, granted to host 0
}

func newParting(t *testing.T) *parting {
	t.Helper()
	w, _, _ := lanePair(t, partingConfig)
	x := &parting{world: w, old: w.es[0], user: w.opSide(1, 31)}
	owner := w.opSide(0, 30)
	ours := owner.expose(0, 64, abi.RightWrite|abi.RightRead, x.user)
	x.region = ours.Region
	x.theirs = x.user.expose(0, 64, abi.RightRead, owner).Cookie
	w.run()
	owner.must(&ipc.Expose{Region: x.region, Addr: hostAddr(2), Port: 9}) // where nobody is
	w.run()
	x.h = x.old.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
	x.h.past = map[lanePath]conn.Past{7: {Peer: x.h.instance, RxLast: 5, NextTx: 6}}
	x.h.untold, x.h.untoldOf, x.h.untoldAt = []untoldKey{{1, 0x500}, {3, 0x600}, {4, 0x700}}, map[uint32]uint64{0x600: 3, 0x700: 4}, 4
	x.h.lanes[1].warned = 3
	w.still(0)
	for range 2 {
		x.old.throttle.spend(x.h, rateControl, 3<<19) // in debt, and held
	}
	return x
}

// further gives host 1 a second path, and sequences of a connection there that was forgotten.
func (x *parting) further() {
	x.h.wantsPaths, x.h.paths = 3, 2
	x.h.past[lanePath(7).in(1)] = conn.Past{Peer: x.h.instance, RxLast: 7, NextTx: 8}
	p := x.old.peers.newPeer(x.h, lanePath(0).in(1))
	p.c.Halt(x.old.now)
	p.moving = true
}

// far is the peer at host 2, where nobody is.
func (x *parting) far(e *Engine) *peer {
	return e.peers.hosts[remoteKey{hostAddr(0), hostAddr(2)}].lanes[0]
}

// TestPeersHandedOver: an engine that has nothing of another but what that one handed over
// of its peers goes on with them, and they notice nothing but a break.
func TestPeersHandedOver(t *testing.T) {
	x := newParting(t)
	state, old, h := peersOf(t, x.old), x.old, x.h
	grants := old.mayUse(x)
	e, owner := x.heirOf(0, old, partingConfig)
	if err := adoptPeers(e, state); err != nil {
		t.Fatal(err)
	}
	if again := peersOf(t, e); !bytes.Equal(again, state) {
		t.Errorf("handed over again:\n%x\nit was\n%x", again, state)
	}
	n := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
	if n.who != h.who || n.us != h.us || n.instance != h.instance || n.met != h.met || !reflect.DeepEqual(n.past, h.past) {
		t.Errorf("peer %d, to which this is %d, instance %d met at %d, forgotten lanes %v, want %d, %d, %d, %d, %v",
			n.who, n.us, n.instance, n.met, n.past, h.who, h.us, h.instance, h.met, h.past)
	}
	if n.untoldAt != 4 || !reflect.DeepEqual(n.untold, h.untold[1:]) || !reflect.DeepEqual(n.untoldOf, h.untoldOf) {
		t.Errorf("untold are %v, %v up to %d", n.untold, n.untoldOf, n.untoldAt)
	}
	for i, p := range n.lanes {
		if was := h.lanes[i]; p.begun != was.begun || p.warned != was.warned || !p.parted || p.isUp || !p.wasUp || p.key != was.key || p.took != was.took {
			t.Errorf("lane %d: begun %d, warned up to %d, parted %v, up %v", p.lane, p.begun, p.warned, p.parted, p.isUp)
		}
	}
	g, far := e.keys.by[x.region], x.far(e)
	if was := x.far(old).reach; far.reach.why != was.why || far.reach.last != was.last || was.why == 0 || far.askedBy == nil || far.askedBy.peers != 1 || far.ctls != 1 || g.queued.N != 1 {
		t.Errorf("nobody is at %v: reach %+v, asked by %v, %d messages, %d GRANTs", far.addr, far.reach, far.askedBy, far.ctls, g.queued.N)
	}
	if !reflect.DeepEqual(grants, e.mayUse(x)) || g.exp.Grants() != 2 || owner.cl.acct.grants != 2 || n.shares.all != 1 || !n.lanes[0].exposed() || n.lanes[1].exposed() {
		t.Errorf("%d grants, %d of the user, %d of the peer's table", g.exp.Grants(), owner.cl.acct.grants, n.shares.all)
	}
	x.goesOn(e, n, owner)
}

// mayUse is what the engine may use of host 1.
func (e *Engine) mayUse(x *parting) (rights []bool) {
	g := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}].grants
	for _, k := range []abi.OpKind{abi.OpRead, abi.OpWrite} {
		rights = append(rights, g.Check(&rdmaop.Op{Kind: k, Cookie: x.theirs, Len: 8}, 30) == 0)
	}
	return append(rights, g.Len() == 1)
}

// goesOn lets the engines go on, and looks at what they are to each other.
func (x *parting) goesOn(e *Engine, n *remote, owner *opSide) {
	t, user := x.t, x.user
	ups, downs := n.lanes[0].ups, n.lanes[0].downs
	e.Resume()
	for _, p := range e.peers.all {
		e.dirty.touch(p)
	}
	x.run()
	if p := n.lanes[0]; p.c.State() != conn.Up || p.ups != ups || p.downs != downs || p.parted {
		t.Errorf("%v, went up %d times and down %d times, want %d and %d", p.c.State(), p.ups, p.downs, ups, downs)
	}
	if at := x.es[1].peers.all[0].instance; at != n.us || x.es[1].peers.all[0].grants.Len() != 1 {
		t.Errorf("the peer knows instance %d, which grants it %d", at, x.es[1].peers.all[0].grants.Len())
	}
	if len(n.untold) > 0 || len(n.untoldOf) > 0 {
		t.Errorf("untold are %v, %v", n.untold, n.untoldOf)
	}
	copy(user.mem, "12345678")
	user.open(user.sock, 0, 0, hostAddr(0), 30)
	user.submit(shm.Sub{}, user.op(abi.OpWrite, e.keys.by[x.region].cookie, 8))
	x.run()
	if st := user.statuses(); len(st) != 1 || st[0] != int(abi.StatusSuccess) || string(owner.mem[8:16]) != "12345678" {
		t.Errorf("an operation on the region ends with %v, and %q", st, owner.mem[8:16])
	}
	released := false
	if err := e.keys.release(e.keys.by[x.region], func(error) { released = true }); err != nil || released {
		t.Errorf("release: %v, at once: %v", err, released)
	}
	x.run()
	if p := x.es[1].peers.all[0]; !released || p.grants.Len() != 0 || x.far(e).ctls != 0 || owner.cl.acct.grants != 0 || len(n.allowance.lanes) != 0 {
		t.Errorf("released %v, the peer has %d grants, %d messages wait for nobody, %d grants", released, p.grants.Len(), x.far(e).ctls, owner.cl.acct.grants)
	}
}

// TestPeersRefused: a state of which something was changed is refused, or adopted, and
// nothing panics.
func TestPeersRefused(t *testing.T) {
	x := newParting(t)
	state := peersOf(t, x.old)
	e, owner := x.heirOf(0, x.old, partingConfig)
	fresh := e.peers
	regions := func(f func(*region)) {
		for at := e.keys.all.Head; at != nil; at = at.Next {
			f(at.Of)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	refused := 0
	for i := 12; i < len(state); i++ {
		b := bytes.Clone(state)
		b[i] ^= byte(1 + rng.IntN(255))
		e.peers = peerTable{e: e, hosts: map[remoteKey]*remote{}, byKey: map[verbs.PeerKey]*peer{}, nextKey: fresh.nextKey}
		e.pools, e.due, e.keys.revoking, owner.cl.acct.grants = pools{}, deadlines{}, chores.Rounds[region]{}, 0
		e.devices.recvLeft, e.throttle.held = e.cfg.RecvBufs, nil
		regions(func(g *region) {
			*g = region{id: g.id, number: g.number, sock: g.sock, buf: g.buf, off: g.off, n: g.n, mr: g.mr, cookie: g.cookie, rights: g.rights, inAll: g.inAll, inSock: g.inSock}
		})
		if err := adoptPeers(e, b); err != nil {
			refused++
		}
	}
	if refused < len(state)/8 { // most bytes are counts
		t.Errorf("of %d changed bytes %d were refused", len(state)-12, refused)
	}
}

// TestPeersNotStill: what an engine cannot have while it stands still is not handed over.
func TestPeersNotStill(t *testing.T) {
	for name, change := range map[string]func(x *parting){
		"a lane that is up":               func(x *parting) { x.h.lanes[0].isUp = true },
		"a message in assembly":           func(x *parting) { x.h.lanes[0].partials++ },
		"an answer to a REVOKE":           func(x *parting) { x.h.owed[1] = x.h.lanes },
		"a lane that is to confirm":       func(x *parting) { x.old.keys.all.Head.Of.flush = []flush{{lane: x.h.lanes[0]}} },
		"a message that nobody has":       func(x *parting) { x.h.lanes[0].ctls++ },
		"a lane that is being broken off": func(x *parting) { x.h.lanes[0].breaking = true },
	} {
		x := newParting(t)
		change(x)
		s := handover.Write(handover.Newest)
		if (&crossing{Engine: x.old, s: s}).handOverRemotes(); s.Err() == nil {
			t.Errorf("%s was handed over", name)
		}
	}
}

// TestAskedByAccount: the account that asked for a peer is charged in the next engine, too. Of a
// state that has no labels nobody is.
func TestAskedByAccount(t *testing.T) {
	pod := config.Account{Label: "podx"}
	for version, want := range map[uint16]int{handover.Newest: 1, 5: 0} {
		x := newParting(t)
		p := x.far(x.old)
		x.old.users.askedNoMore(p)
		x.old.users.asked(p, x.old.users.account(pod))
		state := peersIn(t, x.old, version)
		e, _ := x.heirOf(0, x.old, partingConfig)
		if err := adoptPeers(e, state); err != nil {
			t.Fatal(err)
		}
		has := 0
		if a := e.users.accounts[pod]; a != nil {
			has = a.peers
		}
		if root := e.users.accounts[config.UserAccount(0)]; has != want || root != nil && root.peers != 0 {
			t.Errorf("version %d: %d peers, want %d, and of root %+v", version, has, want, root)
		}
	}
}
