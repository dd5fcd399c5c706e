package engine

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// byQP is a connection by queue pairs, with the device that they belong to.
type byQP struct {
	*conn.Conn
	e *Engine
	p *peer

	qp      verbs.QP // nil: none
	rail    *rail    // of qp, or of the last one
	dialed  bool     // qp was made to dial
	crc     verbs.CRCMode
	credits int // receive buffers promised to the peer

	misses    int   // attempts in a row that the first rail did not make
	fallUntil int64 // the first rail is not tried before
	fellWhy   error // why not, the last time

	charge   func(n int) // charges the peer for bytes; nil: never needed
	charging bool        // the queue pair calls it
}

// qpHost is byQP as its connection's host. The methods are up-calls: conn.Host says when each comes.
type qpHost byQP

const (
	qpSendWR    = 1024
	qpSGE       = 16
	qpReadDepth = 32

	// dialNs is the time limit of an attempt by the device. That of the connection is longer, because the device's
	// error says more.
	dialNs = 5_000_000_000
)

// newQP gives p a connection by queue pairs.
func (ps *peerTable) newQP(p *peer) {
	e := ps.e
	q := &byQP{e: e, p: p, crc: e.cfg.CRC(p.addr), credits: e.cfg.PeerCredits}
	q.rail = q.dialRail()
	depth, rnr := qpReadDepth, verbs.CapRNR
	for _, r := range e.devices.rails {
		depth, rnr = min(depth, r.attr.MaxReadDepth), rnr&r.attr.Caps
	}
	if rnr == 0 {
		q.credits = min(q.credits, max(e.devices.recvLeft, conn.MinCredits))
	} // else more may be promised than there are: idle peers use none
	e.devices.recvLeft -= q.credits + 1 // one for HELLO
	q.Conn = conn.New(conn.Config{
		Local: p.local.addr, Remote: p.addr, Lane: p.lane, Path: p.path, Paths: int(p.wantsPaths), Instance: p.us, MaxSend: e.cfg.MaxSend, RecvCredits: q.credits,
		StartSeq: e.cfg.StartSeq(), Past: p.past[p.at()], MaxSendWR: qpSendWR, ReadDepth: depth,
		MinBackoff: 1_000_000, MaxBackoff: e.cfg.MaxBackoff, ConnectTimeout: dialNs + 500_000_000,
		AckDelay: 1_000_000, AckBytes: 64 << 10, SettleTimeout: e.cfg.SettleTimeout, Silence: e.cfg.Silence, Rand: e.cfg.Rand,
		Kernel: e.cfg.KernelPeer(p.addr), IgnorePings: e.cfg.IgnorePings, Attr: q.rail.attr, Scratch: &e.scratch, Owing: &p.owing, Posted: e.traces.posted,
	}, (*qpHost)(q))
	e.carriedBy(p, q)
	switch e.halt.stage {
	case haltOps:
		q.HoldOps()
	case haltBreak:
		q.Halt(e.now)
	}
}

func (q *byQP) supports(o *rdmaop.Op) bool  { return o.Supported(q.rail.attr.Caps) }
func (q *byQP) met() bool                   { return q.Instance() != 0 }
func (q *byQP) retryAt() int64              { return q.RetryAt() }
func (q *byQP) metered() bool               { return q.charging }
func (q *byQP) emptying() bool              { return q.State() == conn.Error }
func (q *byQP) attached() bool              { return q.qp != nil }
func (q *byQP) starved() bool               { return q.Info().Credits == 0 }
func (q *byQP) CutOff(now int64, why error) { q.Reset(now, why) }
func (q *byQP) forget()                     { q.e.devices.recvLeft += q.credits + 1 }

func (q *byQP) profile() *profile {
	if q.Kernel() {
		return &ofKernel
	}
	return &ofRdsd
}

// retries: the other device is tried.
func (q *byQP) retries() bool {
	return q.rail.i == 0 && q.way() == FirstElseSecond && len(q.e.devices.rails) == 2
}

func (q *byQP) figures(i *ctl.PeerInfo) {
	i.Transport, i.CRC, i.RecvCredits = q.rail.attr.Name, q.crc == verbs.CRCOn, q.credits
	if s, ok := q.qp.(interface {
		TLS() string
		Checksums() bool
	}); ok {
		i.TLS, i.CRC = s.TLS(), s.Checksums()
	}
}

func (q *byQP) describe(i *Peer) {
	i.Dialed, i.Fell, i.Second = q.dialed, q.fellWhy, q.rail.i == 1
	i.MaxSegment = q.Narrowed()
	i.OnlySecond = q.p.local.listeners[0] == nil && len(q.e.devices.rails) == 2
}

// The device's events. Each of them touches the peer.

// received handles a receive of which buf is the buffer, nil: it failed.
func (q *byQP) received(now int64, wc *verbs.WC, buf []byte) {
	q.HandleRecv(now, wc, buf)
	q.e.throttle.took(q.p, int(wc.ByteLen))
	q.e.dirty.touch(q.p)
}

func (q *byQP) sent(now int64, wc *verbs.WC) {
	q.HandleSend(now, wc)
	q.e.dirty.touch(q.p)
}

func (q *byQP) emptied(now int64) {
	q.CQEmpty(now)
	q.e.dirty.touch(q.p)
}

// emptied tells the connections whose queue pairs empty that their completion
// queue was empty. What joins the list meanwhile is for the next time.
func (ds *devices) emptied(r *rail) {
	e := ds.e
	list := e.dirty.emptying
	e.dirty.emptying = e.dirty.spareEmptying[:0]
	for _, p := range list {
		q := p.c.to.(*byQP) // no other empties
		if q.rail != r {
			e.dirty.emptying = append(e.dirty.emptying, p)
			continue
		}
		if q.releasing() {
			e.dirty.emptying = append(e.dirty.emptying, p) // the engine would wait in Destroy
			continue
		}
		p.emptying = false
		q.emptied(e.now)
	}
	e.dirty.spareEmptying = list
}

func (q *byQP) came(now int64, ev *verbs.CMEvent) {
	q.HandleCM(now, ev)
	q.e.dirty.touch(q.p)
}

// NewQP makes a queue pair for c, on the device the request came by.
func (u *qpHost) NewQP(c *conn.Conn, req verbs.RequestID) (verbs.QP, error) {
	e, q := u.e, (*byQP)(u)
	p, r := q.p, q.dialRail()
	if req != 0 {
		r, _ = e.devices.railOf(req)
	}
	if q.rail != r {
		q.rail = r
		c.UseAttr(r.attr)
	}
	q.dialed = req == 0
	if err := failpoint.Hit(failpoint.QueuePair); err != nil {
		return nil, err
	}
	p.begun = e.peers.tick()
	q.crc = e.cfg.CRC(p.addr) // a reload may have changed it
	e.keys.warn(p)
	qp, err := r.pd.CreateQP(verbs.QPInitAttr{
		SendCQ: r.cq, RecvCQ: r.cq, SRQ: r.srq,
		Cap: verbs.QPCap{MaxSendWR: qpSendWR, MaxSendSGE: r.attr.MaxSGE, MaxRecvSGE: 1, ReadDepth: min(qpReadDepth, r.attr.MaxReadDepth)},
		Ack: verbs.AckLocal, CRC: q.crc, Peer: p.who,
		Access:  verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic,
		Context: q,
	})
	if err != nil {
		return nil, err
	}
	q.qp = qp
	r.byQPN[qp.Num()] = q
	return qp, nil
}

// CloseQP destroys a queue pair that is empty.
func (u *qpHost) CloseQP(_ *conn.Conn, qp verbs.QP) {
	q := (*byQP)(u)
	delete(q.rail.byQPN, qp.Num())
	q.rail.lastQP = nil
	if q.qp == qp {
		q.qp = nil
	}
	_ = qp.Destroy()
}

// Dial, Accept and Reject pass the connection's wish on to the device.
func (u *qpHost) Dial(c *conn.Conn, qp verbs.QP, private []byte) error {
	e, q := u.e, (*byQP)(u)
	p := q.p
	if err := e.cfg.Allowed(p.addr); err != nil {
		return err
	}
	return q.rail.dev.Connect(qp, verbs.ConnectParam{
		Local: netip.AddrPortFrom(p.local.addr, 0), Remote: e.addrs.port(p.addr), Private: private,
		MaxSegment: c.Segment(), TimeoutNs: dialNs})
}

func (u *qpHost) Accept(_ *conn.Conn, req verbs.RequestID, qp verbs.QP, private []byte) error {
	r, id := u.e.devices.railOf(req)
	return r.dev.Accept(id, qp, private)
}

func (u *qpHost) Reject(req verbs.RequestID, private []byte) { u.e.devices.reject(req, private) }

func (ds *devices) reject(req verbs.RequestID, private []byte) {
	r, id := ds.railOf(req)
	_ = r.dev.Reject(id, private)
}

// pollCM handles a device's connection events.
func (ps *peerTable) pollCM(r *rail) bool {
	e := ps.e
	work := false
	for {
		n := r.dev.PollCM(e.devices.cm[:])
		for i := range n {
			ps.cmEvent(r, &e.devices.cm[i])
			e.devices.cm[i] = verbs.CMEvent{}
		}
		work = work || n > 0
		if n < len(e.devices.cm) {
			return work
		}
	}
}

func (ps *peerTable) cmEvent(r *rail, ev *verbs.CMEvent) {
	if ev.Type == verbs.CMConnectRequest {
		ev.Req = r.request(ev.Req)
		ps.connectRequest(r, ev)
		return
	}
	if q := r.byQPN[ev.QP.Num()]; q != nil && q.qp == ev.QP {
		q.came(ps.e.now, ev)
	}
}

// connectRequest finds the connection a request is for. The address claimed in
// the private data must be the one it comes from, and ours the one it came to.
func (ps *peerTable) connectRequest(r *rail, ev *verbs.CMEvent) {
	e := ps.e
	from, to := ev.Remote.Addr().Unmap(), ev.Local.Addr().Unmap()
	refuse := func(code wire.Why, why error) { // an operator asks for errors by the peer
		e.st.C[stats.BadHandshakes]++
		e.cfg.Trace(Place{Local: ev.Local.Addr(), Remote: ev.Remote.Addr()}, EventRefused, why)
		if e.cfg.Silent != nil && e.cfg.Silent() {
			code = wire.NotSaid
		}
		e.devices.reject(ev.Req, wire.Rejected(code))
	}
	if err := e.cfg.Allowed(from); err != nil {
		refuse(wire.NotAllowed, err)
		return
	}
	priv, err := wire.ParsePrivate(ev.Private, ev.Remote.Addr().Unmap().Is6())
	if err != nil {
		refuse(wire.NotSaid, fmt.Errorf("private data: %w", err))
		return
	}
	l := e.addrs.by[to]
	switch {
	case l == nil || priv.Dst != to:
		refuse(wire.WrongAddress, errors.New("not one of our addresses"))
	case priv.Src != from:
		refuse(wire.WrongAddress, errors.New("claims an address it does not come from"))
	case e.addrs.by[from] != nil:
		refuse(wire.WrongAddress, errors.New("comes from our own address"))
	case e.tcpPeer(l, from):
		refuse(wire.OtherWay, errors.New("is reached by RDS/TCP"))
	default:
		p, err := ps.peer(l, from, lanePath(priv.TOS).in(priv.Path), nil)
		if err != nil {
			refuse(wire.NoRoom, fmt.Errorf("no room: %w", err))
			return
		}
		if !e.throttle.mayRequest(p.remote) {
			refuse(wire.TooMany, errors.New("too many, see "+rateKeys[rateControl]))
			ps.dropIfNew(p)
			return
		}
		q := p.c.to.(*byQP) // tcpPeer has been asked
		if !q.mayCome(r) {
			refuse(wire.OtherWay, errors.New("is reached by another transport"))
			ps.dropIfNew(p)
			return
		}
		q.HandleRequest(e.now, ev.Req, ev.Segment, ev.Private)
		e.dirty.touch(p)
	}
}

// Trace is the connection's up-call for what an operator may want to know.
func (u *qpHost) Trace(_ *conn.Conn, event string, err error) {
	u.e.peers.happened(u.p, event, err)
	if event == conn.EventConnectFailed && !errors.Is(err, conn.ErrRejected) {
		(*byQP)(u).attemptFailed(err)
	}
}
