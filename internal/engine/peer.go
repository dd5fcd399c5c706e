package engine

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

var (
	errRevokeTimeout = errors.New("peer did not give a revoked key back in time")
	ErrNotAllowed    = errors.New("not in peers.allow")
	errCtl           = errors.New("peer takes no answers")
	errAdmin         = errors.New("reset by the administrator")
	errRestarted     = errors.New("another lane met a new instance of the peer's daemon")
)

// peer is one lane of a remote address: its connection and what hangs on it.
type peer struct {
	*remote
	lane      uint8
	key       verbs.PeerKey // stands for this lane in exports: who was granted what on which connection
	c         connection    // rc or tcp
	rc        *conn.Conn    // by queue pairs, or nil
	tcp       *conn.TCP     // by RDS/TCP, or nil
	qp        verbs.QP
	rail      *rail      // of qp, or of the last one
	dialing   bool       // qp was made to dial
	misses    int        // attempts in a row that the first rail did not make
	fallUntil int64      // the first rail is not tried before
	fellWhy   error      // why not, the last time
	begun     uint64     // Engine.clock when the connection, or the attempt, began
	warned    uint64     // remote.untold up to here was queued on this lane
	askedBy   *account   // whose share it is of, until it is met
	slots     audience   // destinations that lead there
	ups       uint64     // how often it came up again, and
	downs     uint64     // went down: what destinations are told
	flows     list[cell] // sockets with messages that wait for their turn
	unmet     list[slot] // destinations with messages that wait for the one that asks who is there
	sender    uint32     // incarnation of the socket whose message without an operation came last
	sentAt    int64      // and when
	sharedTo  int64      // until when a socket that sends few is taken to use it beside others
	partials  []*rxMsg   // messages under assembly: one, on RDS/TCP of each of its lanes
	nth       int        // in peerTable.all
	gone      bool       // not in there any more
	dirty     bool
	reach     reach
	uncounted bool // in e.uncounted
	draining  bool // in e.draining
	isUp      bool // and counted as such
	wasUp     bool
	lastEvent string
	credits   int
	ctls      int // internal messages not ended
	breaking  bool
	timer     alarm[peer] // in deadlines.peers
	row       uint16      // in the engine's lists, 0: none
	whyKey    whyKey      // of whyText, see why
	whyText   string
	crc       verbs.CRCMode
	meter     func(n int) // charges the peer for bytes; nil: never needed
	metered   bool        // the queue pair calls it
	counted   connCounts  // in counts.sum
}

// peer returns the connection of a lane from l to addr, made on first use, by
// a client or (nil) otherwise. EINVAL: no address a peer can have; ENOBUFS: there are
// MaxPeers, or as many are of the client's user as are free.
func (e *Engine) peer(l *local, addr netip.Addr, lane uint8, by *Client) (*peer, error) {
	onTCP := e.tcpPeer(l, addr)
	if onTCP {
		lane = 0 // it has lanes of its own, by source port
	}
	h := e.peers.hosts[remoteKey{l.addr, addr}]
	if p := h.lane(lane); p != nil {
		return p, nil
	}
	if !mayBePeer(l, addr) {
		return nil, fmt.Errorf("%w: %v has no peer %v", unix.EINVAL, l.addr, addr)
	}
	if by == nil {
		if err := e.mayLane(h); err != nil {
			return nil, err
		}
	}
	if err := e.mayPeer(by); err != nil {
		return nil, err
	}
	if h = e.peers.hosts[remoteKey{l.addr, addr}]; h == nil {
		h = e.newRemote(l, addr)
	}
	p := &peer{remote: h, lane: lane, key: h.who + 1 + verbs.PeerKey(lane), crc: e.cfg.CRC(addr)}
	if onTCP {
		e.newTCP(p)
	} else {
		e.newRC(p)
	}
	h.addLane(p)
	p.nth = len(e.peers.all)
	e.peers.all = append(e.peers.all, p)
	e.lists.addPeer(p)
	e.peers.byKey[p.key] = p
	e.asked(p, by)
	if e.crowdedPeers() {
		e.sweepSoon()
	}
	if !l.cong.Empty() {
		p.c.QueueCong(&l.cong)
	}
	return p, nil
}

// newRC gives p a connection by queue pairs.
func (e *Engine) newRC(p *peer) {
	p.rail = e.dialRail(p)
	p.credits = e.cfg.PeerCredits
	depth, rnr := qpReadDepth, verbs.CapRNR
	for _, r := range e.devices.rails {
		depth, rnr = min(depth, r.attr.MaxReadDepth), rnr&r.attr.Caps
	}
	if rnr == 0 {
		p.credits = min(p.credits, max(e.devices.recvLeft, conn.MinCredits))
	} // else more may be promised than there are: idle peers use none
	e.devices.recvLeft -= p.credits + 1 // one for HELLO
	p.rc = conn.New(conn.Config{
		Local: p.local.addr, Remote: p.addr, Lane: p.lane, Instance: p.us, MaxSend: e.cfg.MaxSend, RecvCredits: p.credits,
		StartSeq: e.cfg.StartSeq(), Past: p.past[p.lane], MaxSendWR: qpSendWR, ReadDepth: depth,
		MinBackoff: 1_000_000, MaxBackoff: e.cfg.MaxBackoff, ConnectTimeout: 5_000_000_000,
		AckDelay: 1_000_000, AckBytes: 64 << 10, SettleTimeout: e.cfg.SettleTimeout, Silence: e.cfg.Silence, Rand: e.cfg.Rand,
		Kernel: e.cfg.KernelPeer(p.addr), IgnorePings: e.cfg.IgnorePings, Attr: p.rail.attr, Ctx: p, Scratch: &e.scratch,
	}, e)
	p.c = p.rc
}

// mayBePeer reports whether a host other than ours can have addr.
func mayBePeer(l *local, addr netip.Addr) bool {
	return addr.IsValid() && !addr.IsUnspecified() && !addr.IsMulticast() && addr.Is4() == l.addr.Is4() && addr != broadcast
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

const (
	qpSendWR    = 1024
	qpSGE       = 16
	qpReadDepth = 32
)

func (e *Engine) peerOf(c *conn.Conn) *peer { return c.Ctx().(*peer) }
func (e *Engine) trace(p *peer, event string, err error) {
	e.cfg.Trace(p.local.addr, p.addr, event, err)
}

// NewQP makes a queue pair for c, on the device the request came by.
func (e *Engine) NewQP(c *conn.Conn, req verbs.RequestID) (verbs.QP, error) {
	p := e.peerOf(c)
	r := e.dialRail(p)
	if req != 0 {
		r, _ = e.railOf(req)
	}
	if p.rail != r {
		p.rail = r
		c.UseAttr(r.attr)
	}
	p.dialing = req == 0
	if err := failpoint.Hit(failpoint.QueuePair); err != nil {
		return nil, err
	}
	p.begun = e.tick()
	p.crc = e.cfg.CRC(p.addr) // a reload may have changed it
	e.warn(p)
	qp, err := r.pd.CreateQP(verbs.QPInitAttr{
		SendCQ: r.cq, RecvCQ: r.cq, SRQ: r.srq,
		Cap: verbs.QPCap{MaxSendWR: qpSendWR, MaxSendSGE: r.attr.MaxSGE, MaxRecvSGE: 1, ReadDepth: min(qpReadDepth, r.attr.MaxReadDepth)},
		Ack: verbs.AckLocal, CRC: p.crc, Peer: p.who,
		Access:  verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic,
		Context: p,
	})
	if err != nil {
		return nil, err
	}
	p.qp = qp
	r.byQPN[qp.Num()] = p
	return qp, nil
}

// CloseQP destroys a queue pair that has drained.
func (e *Engine) CloseQP(c *conn.Conn, qp verbs.QP) {
	p := e.peerOf(c)
	delete(p.rail.byQPN, qp.Num())
	p.rail.lastQP = nil
	if p.qp == qp {
		p.qp = nil
	}
	qp.Destroy()
}

// Dial, Accept and Reject pass the connection's wish on to the device.
func (e *Engine) Dial(c *conn.Conn, qp verbs.QP, private []byte) error {
	p := e.peerOf(c)
	if !e.cfg.Allowed(p.addr) {
		return ErrNotAllowed
	}
	return p.rail.dev.Connect(qp, verbs.ConnectParam{
		Local: netip.AddrPortFrom(p.local.addr, 0), Remote: e.port(p.addr), Private: private})
}

func (e *Engine) Accept(_ *conn.Conn, req verbs.RequestID, qp verbs.QP, private []byte) error {
	r, id := e.railOf(req)
	return r.dev.Accept(id, qp, private)
}

func (e *Engine) Reject(req verbs.RequestID, private []byte) {
	r, id := e.railOf(req)
	_ = r.dev.Reject(id, private)
}

// pollCM handles a device's connection events.
func (e *Engine) pollCM(r *rail) bool {
	work := false
	for {
		n := r.dev.PollCM(e.devices.cm[:])
		for i := 0; i < n; i++ {
			e.cmEvent(r, &e.devices.cm[i])
			e.devices.cm[i] = verbs.CMEvent{}
		}
		work = work || n > 0
		if n < len(e.devices.cm) {
			return work
		}
	}
}

func (e *Engine) cmEvent(r *rail, ev *verbs.CMEvent) {
	if ev.Type == verbs.CMConnectRequest {
		ev.Req = r.request(ev.Req)
		e.connectRequest(r, ev)
		return
	}
	if p := r.byQPN[ev.QP.Num()]; p != nil && p.qp == ev.QP {
		p.rc.HandleCM(e.now, ev)
		e.touch(p)
	}
}

// connectRequest finds the connection a request is for. The address claimed in
// the private data must be the one it comes from, and ours the one it came to.
func (e *Engine) connectRequest(r *rail, ev *verbs.CMEvent) {
	from, to := ev.Remote.Addr().Unmap(), ev.Local.Addr().Unmap()
	refuse := func(why string, err error) {
		e.st.C[stats.BadHandshakes]++
		e.cfg.Trace(ev.Local.Addr(), ev.Remote.Addr(), "connection refused: "+why, err)
		e.Reject(ev.Req, wire.Rejected())
	}
	if !e.cfg.Allowed(from) {
		refuse("not in peers.allow", nil)
		return
	}
	priv, err := wire.ParsePrivate(ev.Private, ev.Remote.Addr().Unmap().Is6())
	if err != nil {
		refuse("private data", err)
		return
	}
	l := e.addrs.by[to]
	switch {
	case l == nil || priv.Dst != to:
		refuse("not one of our addresses", nil)
	case priv.Src != from:
		refuse("claims an address it does not come from", nil)
	case e.addrs.by[from] != nil:
		refuse("comes from our own address", nil)
	case e.tcpPeer(l, from):
		refuse("is reached by RDS/TCP", nil)
	default:
		p, err := e.peer(l, from, priv.TOS, nil)
		if err != nil {
			refuse("no room", err)
			return
		}
		if !e.mayRequest(p.remote) {
			refuse("too many, see "+rateKeys[rateControl], nil)
			e.dropIfNew(p)
			return
		}
		if !e.mayCome(p, r) {
			refuse("is reached by another transport", nil)
			e.dropIfNew(p)
			return
		}
		p.rc.HandleRequest(e.now, ev.Req, ev.Private)
		e.touch(p)
	}
}

// PeerUp: the handshake is complete.
func (e *Engine) PeerUp(c *conn.Conn, _ bool) { e.peerUp(e.peerOf(c)) }

func (e *Engine) peerUp(p *peer) {
	p.misses = 0
	e.setReach(p, 0)
	e.cameUp(p)
	e.askedNoMore(p)
	e.st.C[stats.PeerConnects]++
	e.st.C[stats.PeersUp]++
	p.isUp = true
	if p.wasUp {
		p.ups++
	}
	p.wasUp = true
	e.tell(&p.slots)
}

// PeerDown: the connection is down and drained.
func (e *Engine) PeerDown(c *conn.Conn, why error) { e.peerDown(e.peerOf(c)) }

func (e *Engine) peerDown(p *peer) {
	if p.isUp { // else an attempt was reset
		p.isUp = false
		e.st.C[stats.PeersUp]--
	}
	e.revokeDown(p)
	e.sweepSoon()
	p.downs++
	e.tell(&p.slots)
}

// Trace passes on what an operator may want to know.
// Attempts that fail one after the other are one event.
func (e *Engine) Trace(c *conn.Conn, event string, err error) {
	p := e.peerOf(c)
	e.traceOnce(p, event, err)
	if event == conn.EventConnectFailed {
		e.unreached(p, err)
	}
	if event == conn.EventConnectFailed && !errors.Is(err, conn.ErrRejected) {
		e.attemptFailed(p, err)
	}
}

func (e *Engine) traceOnce(p *peer, event string, err error) {
	if event != p.lastEvent || event == "up" {
		p.lastEvent = event
		e.trace(p, event, err)
	}
}
