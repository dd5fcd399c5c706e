package engine

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/tcp"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/rdstcp"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// byTCP is a connection by RDS/TCP. It has no device, queue pair, grant or instance. The
// net makes its streams.
type byTCP struct {
	*tcp.Conn
	p *peer
}

func tcpOf(c *tcp.Conn) *byTCP                { return c.Ctx().(*byTCP) }
func tcpPeerOf(c *tcp.Conn) *peer             { return tcpOf(c).p }
func (t *byTCP) profile() *profile            { return &ofTCP }
func (t *byTCP) supports(*rdmaop.Op) bool     { return false }
func (t *byTCP) Queued() int                  { return 0 }
func (t *byTCP) OpsUnderWay() uint64          { return 0 }
func (t *byTCP) Stopped(uint16) bool          { return false }
func (t *byTCP) Asks() bool                   { return false }
func (t *byTCP) Released() uint64             { return 0 }
func (t *byTCP) LetsGo() bool                 { return false }
func (t *byTCP) met() bool                    { return t.Info().Met }
func (t *byTCP) retryAt() int64               { return t.Info().RetryAt }
func (t *byTCP) metered() bool                { return false }
func (t *byTCP) meter()                       {}
func (t *byTCP) emptying() bool               { return false }
func (t *byTCP) attached() bool               { return false }
func (t *byTCP) retries() bool                { return false }
func (t *byTCP) starved() bool                { return false }
func (t *byTCP) SetSilence(int64, int64)      {}
func (t *byTCP) Probe() bool                  { return false }
func (t *byTCP) forget()                      {}
func (t *byTCP) HoldOps()                     {}
func (t *byTCP) OpsOpen() bool                { return false }
func (t *byTCP) Past() (p conn.Past, ok bool) { return p, false }
func (t *byTCP) IdleSince() (int64, bool)     { return 0, false }
func (t *byTCP) Path() (p verbs.Path)         { return p }

func (t *byTCP) figures(i *ctl.PeerInfo) { i.Transport, i.TCPLanes = "tcp", t.Up() }
func (t *byTCP) describe(i *Peer)        { i.TCPConns = tcpConns(t.Conn) }

var (
	errOnTCP    = fmt.Errorf("%w: the peer is reached by RDS/TCP, which has no RDMA", unix.EOPNOTSUPP)
	errNotOnTCP = errors.New("is not reached by RDS/TCP")
)

// tcpScratch is where the frames of all tcp.Conn are put together, bytes.
const tcpScratch = 256 << 10

// UseTCP gives the engine the means to reach peers by RDS/TCP: those for which
// is reports true. It owns n from now on. Before AddLocal only.
func (e *Engine) UseTCP(n *rdstcp.Net, is func(local, peer netip.Addr) bool, lanes int) {
	n.KnowFrames(begun)
	e.tcp = &tcpSide{e: e, net: n, is: is, lanes: lanes, scratch: make([]byte, tcpScratch)}
}

// tcpSide is the engine as the owner of RDS/TCP: tcp.Host and
// rdstcp.Handler.
type tcpSide struct {
	e       *Engine
	net     *rdstcp.Net
	is      func(local, peer netip.Addr) bool
	lanes   int
	scratch []byte
}

// begun says where the frames of s begin.
func begun(s *rdstcp.Conn) (head []byte, in, out int) {
	if b, ok := s.Owner.(*byTCP); ok {
		return b.Begun(s.Lane)
	}
	return nil, 0, 0
}

// tcpPeer says that addr is reached from l by RDS/TCP.
func (e *Engine) tcpPeer(l *localAddr, addr netip.Addr) bool {
	return e.tcp != nil && e.tcp.is(l.addr, addr)
}

// tcpConns are the TCP connections of c that are up.
func tcpConns(c *tcp.Conn) (out []ctl.TCPConn) {
	var lanes [wire.MaxPaths]tcp.Lane
	for _, l := range c.Lanes(lanes[:0]) {
		if s, ok := l.Stream.(*rdstcp.Conn); ok && l.State == conn.Up {
			out = append(out, ctl.TCPConn{LocalPort: s.Local.Port(), RemotePort: s.Remote.Port(), HdrRemain: l.HdrLeft, DataRemain: l.DataLeft,
				Sent: l.Written, Awaited: l.Awaited, Acked: l.TCPs})
		}
	}
	return out
}

// limitsOf is what addr does not take from l. A cookie over RDS/TCP would be
// worse than useless: Linux's RDS has none there, and one that arrives ends the
// process that receives it (net/rds/recv.c rds_cmsg_recv: usercopy).
func (e *Engine) limitsOf(l *localAddr, addr netip.Addr) shm.SlotLimits {
	if e.addrs.by[addr] == nil && e.tcpPeer(l, addr) {
		return shm.SlotNoRDMA
	}
	return 0
}

func (e *Engine) pollTCP() bool { return e.tcp != nil && e.tcp.net.Poll(e.tcp) }

func (e *Engine) tcpBusy() bool { return e.tcp != nil && e.tcp.net.Busy() }

// tcpStands reports whether nothing of RDS/TCP is in progress.
func (e *Engine) tcpStands() bool {
	if e.tcp == nil {
		return true
	}
	if left, _ := e.tcp.net.Left(); left > 0 {
		return false
	}
	for _, p := range e.peers.all {
		if _, is := p.c.to.(*byTCP); is && p.c.State() != conn.Down {
			return false
		}
	}
	return true
}

func (e *Engine) newTCP(p *peer) {
	t := &byTCP{p: p}
	t.Conn = tcp.New(tcp.Config{
		Local: p.local.addr, Remote: p.addr, Lanes: e.tcp.lanes, StartSeq: e.cfg.StartSeq(), Cong: &p.local.cong,
		MinBackoff: 1_000_000, MaxBackoff: e.cfg.MaxBackoff, CloseTimeout: 1_000_000_000,
		IgnorePings: e.cfg.IgnorePings, Rand: e.cfg.Rand, Scratch: e.tcp.scratch, Ctx: t, Posted: e.traces.posted,
	}, e.tcp)
	e.carriedBy(p, t)
	if e.halt.stage == haltBreak {
		t.Halt(e.now)
	}
}

// Deliver, Begin, Commit and Abort are the up-calls of arriving messages.
func (t *tcpSide) Deliver(c *tcp.Conn, h *wire.Header, payload []byte) conn.Verdict {
	v, _, _ := t.e.rx.deliverFrom(tcpPeerOf(c), h, payload, nil) // nobody there asks who has it, and no runs come
	return v
}

func (t *tcpSide) Begin(c *tcp.Conn, h *wire.Header) ([]byte, any, conn.Verdict) {
	return t.e.rx.beginFrom(tcpPeerOf(c), h, nil)
}

func (t *tcpSide) Commit(c *tcp.Conn, h *wire.Header, token any) {
	t.e.rx.commitFrom(tcpPeerOf(c), h, token)
}

func (t *tcpSide) Abort(c *tcp.Conn, token any) { t.e.rx.abortFrom(tcpPeerOf(c), token) }

// MsgDone is the up-call for the end of a message. None is returned, and there are no pieces.
func (t *tcpSide) MsgDone(_ *tcp.Conn, m *msg.Msg, o msg.Outcome) {
	switch own := m.Owner.(type) {
	case *txMsg:
		t.e.tx.txDone(own, o)
	case *ctlMsg:
		t.e.peers.ctlDone(own, o)
	}
}

// PeerUp, PeerDown and Congestion are told as those of queue pairs.
func (t *tcpSide) PeerUp(c *tcp.Conn) { t.e.peers.peerUp(tcpPeerOf(c), false) }

func (t *tcpSide) PeerDown(c *tcp.Conn, _ error) { t.e.peers.peerDown(tcpPeerOf(c), true) }

func (t *tcpSide) Congestion(c *tcp.Conn, _ *cong.Map) { t.e.rx.congestion(tcpPeerOf(c)) }

// Trace is the up-call for what an operator may want to know.
func (t *tcpSide) Trace(c *tcp.Conn, event string, err error) {
	t.e.peers.happened(tcpPeerOf(c), event, err)
}

// dialing is an attempt to connect that is in progress.
type dialing struct {
	by   *byTCP
	lane int
	id   uint64
}

// Dial connects a lane.
func (t *tcpSide) Dial(c *tcp.Conn, lane int, id uint64, must bool) error {
	b := tcpOf(c)
	if err := t.e.cfg.Allowed(b.p.addr); err != nil {
		return err
	}
	t.net.Dial(b.p.local.addr, b.p.addr, lane, must, &dialing{b, lane, id})
	return nil
}

// Dialed ends an attempt.
func (t *tcpSide) Dialed(ctx any, s *rdstcp.Conn, err error) {
	d := ctx.(*dialing)
	if err != nil {
		d.by.HandleFailed(t.e.now, d.lane, d.id, err)
	} else {
		s.Owner, s.Lane = d.by, d.lane
		d.by.HandleConnected(t.e.now, d.lane, d.id, s, s.Chosen)
		s.Hold(d.by.p.ration.held)
	}
	t.e.dirty.touch(d.by.p)
}

// Accepted takes a connection of a peer's, or resets it.
func (t *tcpSide) Accepted(s *rdstcp.Conn) {
	b, err := t.caller(s)
	if err != nil {
		s.Close(true)
		t.e.watch.refusedTCP(s, err)
		return
	}
	s.Owner = b
	if s.Lane, err = b.HandleAccept(t.e.now, s, s.Remote.Port()); err != nil {
		s.Close(true)
	}
	s.Hold(b.p.ration.held)
	t.e.dirty.touch(b.p)
}

// caller is whose connection s is.
func (t *tcpSide) caller(s *rdstcp.Conn) (*byTCP, error) {
	e := t.e
	from, l := s.Remote.Addr(), e.addrs.by[s.Local.Addr()]
	if err := e.cfg.Allowed(from); err != nil {
		return nil, err
	}
	switch {
	case l == nil || e.addrs.by[from] != nil:
		return nil, errors.New("comes from our own address, or to none")
	case !e.tcpPeer(l, from):
		return nil, errNotOnTCP
	}
	p, err := e.peers.peer(l, from, 0, nil)
	if err != nil {
		return nil, err
	}
	return p.c.to.(*byTCP), nil
}

// Want, Placed, Data, Room and Closed pass on what happens on a stream.
func (t *tcpSide) Want(s *rdstcp.Conn) []byte { return s.Owner.(*byTCP).Want(s.Lane) }

func (t *tcpSide) Placed(s *rdstcp.Conn, n int) {
	t.e.looks()
	b := s.Owner.(*byTCP)
	b.HandlePlaced(t.e.now, s.Lane, n)
	t.e.throttle.took(b.p, n)
	t.e.dirty.touch(b.p)
}

func (t *tcpSide) Data(s *rdstcp.Conn, data []byte) {
	t.e.looks()
	b := s.Owner.(*byTCP)
	b.HandleData(t.e.now, s.Lane, data)
	t.e.throttle.took(b.p, len(data))
	t.e.dirty.touch(b.p)
}

func (t *tcpSide) Room(s *rdstcp.Conn) {
	b := s.Owner.(*byTCP)
	b.HandleRoom(t.e.now, s.Lane)
	t.e.dirty.touch(b.p)
}

func (t *tcpSide) Closed(s *rdstcp.Conn, err error) {
	b := s.Owner.(*byTCP)
	b.HandleClosed(t.e.now, s.Lane, err)
	t.e.dirty.touch(b.p)
}

// GiveBack is not called: there is one path.
func (t *byTCP) GiveBack(int64, uint64) {}
