package engine

import (
	"errors"
	"fmt"
	"github.com/rdsd/rdsd/internal/chores"
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

var (
	errRevokeTimeout = errors.New("peer did not give a revoked key back in time")
	ErrNotAllowed    = errors.New("not in peers.allow")
	errCtl           = errors.New("peer takes no answers")
	errAdmin         = errors.New("reset by the administrator")
	errRestarted     = errors.New("another connection met a new instance of the peer's daemon")
)

// peer is one path of a lane of a remote address: its connection, and everything that uses it.
type peer struct {
	*remote
	lane  uint8
	path  uint8
	key   verbs.PeerKey // stands for this connection in exports: who was granted what on which connection
	nth   int           // in peerTable.all
	gone  bool          // not in there any more
	begun uint64        // Engine.clock when the connection, or the attempt, began
	c     connection

	askedBy *account // whose share it is of, until it is met
	slots   audience // destinations that lead there
	ups     uint64   // how often it came up again, and
	downs   uint64   // went down: what destinations are told
	isUp    bool     // and counted as such
	wasUp   bool
	halted  bool // it was up when a pause broke it off
	parted  bool // it is down because of a pause: destinations know nothing of it yet
	reach   reach

	moving   bool   // what its connection has for a former instance is to be taken back, see leave
	knocks   bool   // it is to try once to connect, see knock
	partials int    // messages under assembly: one, on RDS/TCP of each of its lanes
	ctls     int    // internal messages not ended
	warned   uint64 // remote.untold up to here was queued on this connection

	took times
	sharing
	looked
	shown
}

// sharing is the sockets that use a connection, and whose turn it is.
type sharing struct {
	flows    rota                // destinations whose messages wait for their turn
	paused   chores.Rounds[slot] // destinations whose messages wait for the end of others or for their port, see Engine.waits
	waiting  int                 // datagrams that wait in destinations that lead there
	released uint64              // of the connection, when looking began anew
	looking  chores.Chore        // at paused, see lookReleased
	sender   uint32              // incarnation of the socket whose message without an operation came last
	sentAt   int64               // and when
	sharedTo int64               // until when a socket that sends few is taken to use it beside others

	exposes map[*Client]*lists.List[ctlMsg] // GRANTs by Expose that are not acked, in order, see behindGrant
}

// looked is the reasons for which the engine looks at a peer.
type looked struct {
	dirty     bool              // in dirtyPeers.flush, or being flushed
	touched   bool              // while it was
	breaking  bool              // in dirtyPeers.breaking
	emptying  bool              // in dirtyPeers.emptying
	uncounted bool              // in counts.uncounted
	timer     lists.Alarm[peer] // in deadlines.peers
}

// shown is what was published about a peer.
type shown struct {
	row       uint16     // in the engine's lists, 0: none
	counted   connCounts // in counts.sum
	lastEvent string
	whyKey    whyKey // of whyText, see lastError
	whyText   string
	whyAt     int64 // when it came
}

// peer returns the connection at a lane and path from l to addr, made on first use, by
// a client or (nil) otherwise. EINVAL: no address a peer can have; ENOBUFS: there are
// MaxPeers, or as many are of the client's user as are free.
func (ps *peerTable) peer(l *localAddr, addr netip.Addr, at lanePath, by *Client) (*peer, error) {
	e := ps.e
	if e.tcpPeer(l, addr) {
		at = 0 // it has lanes of its own, by source port
	}
	h := ps.hosts[remoteKey{l.addr, addr}]
	if p := h.lane(at); p != nil {
		return p, nil
	}
	if !mayBePeer(l, addr) {
		return nil, fmt.Errorf("%w: %v has no peer %v", unix.EINVAL, l.addr, addr)
	}
	if by == nil {
		if err := ps.mayLane(h); err != nil {
			return nil, err
		}
	}
	if err := e.users.mayPeer(by); err != nil {
		return nil, err
	}
	if h = ps.hosts[remoteKey{l.addr, addr}]; h == nil {
		h = ps.newRemote(l, addr, e.keys.newKeys(), ps.newInstance())
	}
	p := ps.newPeer(h, at)
	if by != nil {
		e.users.asked(p, by.acct)
	}
	if ps.crowdedPeers() {
		ps.sweepSoon()
	}
	if !l.cong.Empty() {
		p.c.QueueCong(&l.cong)
	}
	return p, nil
}

// newPeer makes a connection of h, which has none there.
func (ps *peerTable) newPeer(h *remote, at lanePath) *peer {
	e := ps.e
	p := &peer{remote: h, lane: uint8(at), path: uint8(at >> 8)}
	p.flows.pool = &e.pools.takers
	p.key = h.who + 1 + verbs.PeerKey(p.lane) + pathKeys*verbs.PeerKey(p.path)
	if e.tcpPeer(h.local, h.addr) {
		e.newTCP(p)
	} else {
		ps.newQP(p)
	}
	h.addLane(p)
	p.nth = len(ps.all)
	ps.all = append(ps.all, p)
	e.watch.lists.addPeer(p)
	ps.byKey[p.key] = p
	return p
}

// mayBePeer reports whether a host other than ours can have addr.
func mayBePeer(l *localAddr, addr netip.Addr) bool {
	return addr.IsValid() && !addr.IsUnspecified() && !addr.IsMulticast() && addr.Is4() == l.addr.Is4() && addr != broadcast
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// PeerUp: the handshake is complete.
func (u *qpHost) PeerUp(_ *conn.Conn, restarted bool) {
	u.misses = 0
	u.e.peers.peerUp(u.p, restarted)
}

func (ps *peerTable) peerUp(p *peer, restarted bool) {
	e := ps.e
	ps.setReach(p, 0)
	e.throttle.cameUp(p)
	e.users.askedNoMore(p)
	e.st.C[stats.PeerConnects]++
	e.st.C[stats.PeersUp]++
	p.isUp, p.knocks = true, false
	p.halted = e.halt.stage == haltBreak // it ends at once, see byTCP
	if p.wasUp && !p.partedUp(restarted) {
		p.ups++
	}
	p.wasUp = true
	p.lookPaused()
	e.dests.tell(&p.slots)
}

// PeerDown: the connection is down, and its queue pair is empty.
func (u *qpHost) PeerDown(_ *conn.Conn, why error) {
	p := u.p
	u.e.peers.peerDown(p, p.isUp || !errors.Is(why, conn.ErrHalted))
}

// peerDown notes that p is down. It is no news if a pause has broken off a handshake: then
// destinations know of the break before that, if there was one.
func (ps *peerTable) peerDown(p *peer, news bool) {
	e := ps.e
	if p.isUp { // else an attempt was reset
		p.isUp = false
		e.st.C[stats.PeersUp]--
	}
	e.keys.revokeDown(p)
	p.askAgain()
	ps.sweepSoon()
	if p.partedDown() || !news {
		return
	}
	p.downs++
	e.dests.tell(&p.slots)
}

// happened traces an event of p's connection. Attempts that fail one after the other are one event.
func (ps *peerTable) happened(p *peer, event string, err error) {
	if event != p.lastEvent || event == "up" {
		p.lastEvent = event
		ps.e.cfg.Trace(p.place(), event, err)
	}
	if event == conn.EventConnectFailed {
		ps.unreached(p, err)
		ps.sweepSoon() // it may have been the last
	}
}
