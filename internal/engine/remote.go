package engine

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// remote is a peer's address as seen from one local address: what the connections to it share.
// There is one in each lane and path, see peer. Code about a remote and about keys calls
// these connections its lanes.
type remote struct {
	local  *localAddr
	addr   netip.Addr
	addr16 [16]byte       // addr as messages to clients carry it
	who    verbs.PeerKey  // its queue pairs', whatever the lane: who may touch a region
	grants *rdmaop.Grants // what it allows us, on any lane
	lanes  []*peer        // its connections, by path and lane

	ration ration

	answers int    // of its lanes: answers and questions to it that it has not acked, see maxCtl
	owing   int    // and notices and pongs
	said    shares // GRANTs and REVOKEs likewise, see maxSaid

	unfinished int // bytes of messages that it began and has not finished

	paths      uint8 // in each lane, with the instance that was met last; 0: not known yet
	wantsPaths uint8 // how many us wants, as the peer may know
	exposing   int   // GRANTs on the lists of its connections, see sharing.exposes

	us       uint64                 // our instance, as it knows it
	past     map[lanePath]conn.Past // of connections that were forgotten, for the instance that was met last
	instance uint64                 // of its daemon, 0 = never met
	met      uint64                 // Engine.clock when instance was met first

	*allowance     // what we allow it
	asking     int // lanes that are being asked for one key
	asks       asks

	owed     map[uint32][]*peer // by key: the lanes on which to answer REVOKE when its last operation retires
	untold   []untoldKey        // keys that were taken back while it could not be told, see warn: what isUntold is true of
	untoldOf map[uint32]uint64  // by key: its number among them
	untoldAt uint64             // the last one's number
}

type remoteKey struct{ local, remote netip.Addr }

// untoldKey is a dead key that the peer may still take for valid.
type untoldKey struct {
	n    uint64
	rkey uint32
}

// isUntold reports whether the peer is still to be told of k.
func (h *remote) isUntold(k untoldKey) bool { return h.untoldOf[k.rkey] == k.n }

func (ps *peerTable) newRemote(l *localAddr, addr netip.Addr, who verbs.PeerKey, us uint64) *remote {
	e := ps.e
	h := &remote{local: l, addr: addr, addr16: addr.As16(), who: who, allowance: e.keys.newAllowance(), us: us, grants: rdmaop.NewGrants(e.cfg.MaxGrants),
		owed: map[uint32][]*peer{}, untoldOf: map[uint32]uint64{}}
	if h.wantsPaths = uint8(e.cfg.Paths); h.wantsPaths <= 1 || e.tcpPeer(l, addr) {
		h.oneWay()
	}
	ps.hosts[remoteKey{l.addr, addr}] = h
	return h
}

// oneWay says that one path leads to h, whatever it wants.
func (h *remote) oneWay() { h.wantsPaths, h.paths = 1, 1 }

// peerTable is the hosts that have or had connections with this one.
type peerTable struct {
	e *Engine

	hosts     map[remoteKey]*remote
	all       []*peer // lanes of all hosts
	byKey     map[verbs.PeerKey]*peer
	nextKey   verbs.PeerKey
	sweep     sweep
	droppedAt int64 // when dropUnused looked last
}

func (h *remote) find(at lanePath) (int, bool) {
	return slices.BinarySearchFunc(h.lanes, at, func(p *peer, n lanePath) int { return cmp.Compare(p.at(), n) })
}

// lane returns a connection, nil if there is none. h may be nil.
func (h *remote) lane(at lanePath) *peer {
	if h == nil {
		return nil
	}
	if i, ok := h.find(at); ok {
		return h.lanes[i]
	}
	return nil
}

func (h *remote) addLane(p *peer) {
	i, _ := h.find(p.at())
	h.lanes = slices.Insert(h.lanes, i, p)
}

// dropLane forgets a lane, and the address with its last one.
func (ps *peerTable) dropLane(p *peer) {
	h := p.remote
	p.askAgain()
	if h.lanes = remove(h.lanes, p); len(h.lanes) == 0 {
		ps.e.throttle.forget(h)
		delete(ps.hosts, remoteKey{h.local.addr, h.addr})
	}
}

// attached reports whether a queue pair leads there: whether anything the peer
// has posted may still arrive.
func (h *remote) attached() bool {
	return slices.ContainsFunc(h.lanes, func(p *peer) bool { return p.attached() })
}

func (p *peer) attached() bool {
	s := p.c.State()
	return s == conn.Up || s == conn.Error
}

// tick returns a number that is higher than all before: what came first is
// asked of events within one turn, too.
func (ps *peerTable) tick() uint64 {
	e := ps.e
	e.clock++
	return e.clock
}

// Instance is the connection's question whether to believe HELLO. A lane that
// names another instance than the one we know may have met a new one, or be the
// last word of an old one, read late. Only a connection that was begun after the
// known instance was met cannot lead to one before it; any other is not
// believed, and tried again. With one lane this never happens.
func (u *qpHost) Instance(_ *conn.Conn, id uint64) bool {
	e, p := u.e, u.p
	h := p.remote
	if id == h.instance {
		return true
	}
	if h.instance != 0 {
		if p.begun < h.met || !e.peers.restarted(p) {
			return false
		}
	}
	h.instance, h.met = id, e.peers.tick()
	h.past = nil
	e.peers.learnPaths(p, (*byQP)(u).Paths())
	return true
}

// restarted ends what the old instance of a peer's daemon was granted, and had
// granted. p is the lane that met the new one. The others break off first: then
// nothing that the old one has sent on them can touch a region, whoever is
// granted it next. It returns false if a thread of the device still places what came on one of them.
func (ps *peerTable) restarted(p *peer) bool {
	e := ps.e
	for _, q := range p.lanes {
		if q != p && q.c.Ready() {
			q.c.Reset(e.now, errRestarted)
		}
	}
	if slices.ContainsFunc(p.lanes, func(q *peer) bool { return q != p && q.releasing() }) {
		return false
	}
	e.st.C[stats.PeerRestarts]++
	ps.voidGrants(p.remote)
	return true
}

// releasing reports whether a thread of the device has something of p's queue pair, which has failed.
func (p *peer) releasing() bool {
	q, ok := p.c.to.(*byQP)
	return ok && q.releasing()
}

func (q *byQP) releasing() bool {
	of, ok := q.qp.(verbs.Releaser)
	return ok && of.Releasing()
}

// voidGrants ends all grants between us and a peer. What has not been sent goes
// to the new instance: grants that wait are its grants, and a cookie that waits
// needs one.
func (ps *peerTable) voidGrants(h *remote) {
	e := ps.e
	h.grants.Clear()
	h.owed, h.untoldOf, h.untold = map[uint32][]*peer{}, map[uint32]uint64{}, nil
	voiding := e.keys.voidAllowance(h)
	for _, p := range h.lanes {
		p.c.Waiting(func(m *msg.Msg) { // as long as it can be told from what was sent
			if t, ok := m.Owner.(*ctlMsg); ok && t.region != nil {
				e.keys.current(t.region, h)
			}
		})
	}
	e.chores.Begin(voiding)
	for _, p := range h.lanes {
		regrant := func(m *msg.Msg) {
			switch t := m.Owner.(type) {
			case *ctlMsg:
				e.keys.regrant(p, t)
			case *piece:
				m.DstInc = t.t.name
			case *txMsg:
				m.DstInc = t.name
				if m.DestCookie != 0 {
					e.keys.grantAgain(t)
				}
			}
		}
		p.c.Waiting(regrant)
		p.eachWaiting(func(m *msg.Msg) {
			t := m.Owner.(*txMsg)
			t.ungranted = m.DestCookie != 0
		})
	}
}

// stale reports whether p still leads to an instance that is gone: what it says
// of grants is void.
func (p *peer) stale() bool { return p.c.Instance() != p.instance }

// The initiator's side of REVOKE follows.

// answerRevoke takes a REVOKE that arrived on p, one of so many lanes: every lane may use the key, so
// the answer waits for the operations of all.
func (ps *peerTable) answerRevoke(p *peer, rkey uint32, lanes int) {
	if p.grants.Revoke(rkey, lanes) {
		ps.sendRevoke(p, wire.TypeRevoked, rkey, 1)
		return
	}
	if !slices.Contains(p.owed[rkey], p) {
		p.owed[rkey] = append(p.owed[rkey], p)
	}
}

// sendRevoked answers the REVOKEs of a key whose last operation has retired,
// each on the lane it came on. p is the operation's.
func (ps *peerTable) sendRevoked(p *peer, rkey uint32) {
	h := p.remote
	for _, lane := range h.owed[rkey] {
		ps.sendRevoke(lane, wire.TypeRevoked, rkey, 1)
	}
	delete(h.owed, rkey)
}

// sendRevoke sends REVOKE, which so many lanes carry, or REVOKED.
func (ps *peerTable) sendRevoke(p *peer, t wire.InternalType, rkey uint32, lanes int) {
	m := ps.ctl(p, t, rkey)
	ps.sendCtl(p, m, (&wire.Revoke{RKey: rkey, Lanes: uint32(lanes)}).Append(m.buf[:0]))
	if p.paths > 0 && p.path >= p.paths && p.c.Instance() != 0 && p.stale() { // a daemon that knows one path rejects it
		p.moving = true
		ps.e.dirty.touch(p)
	}
}
