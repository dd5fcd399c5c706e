package conn

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/verbs"
)

// Why a connection over TCP ended, or an attempt.
var (
	ErrPoked    = errors.New("conn: the peer was asked to connect: it has the smaller address")
	ErrLaneBusy = errors.New("conn: no lane is down")
)

// Stream is one TCP connection. Its calls never block.
type Stream interface {
	// Write copies bytes of the pieces, in order, and returns how many. If it took
	// fewer than all, the rest has to wait for HandleRoom.
	Write(pieces [][]byte) (int, error)
	// Unacked returns how many of the bytes written the peer's TCP has not
	// acknowledged.
	Unacked() (int, error)
	// Finish ends this direction behind the bytes that were written.
	Finish()
	// Close ends the connection. With abort the peer sees a reset.
	Close(abort bool)
}

// TCPHost is the owner of a TCP. It is called as a Host is, and may call back what a
// Host may.
type TCPHost interface {
	// Deliver, Begin, Commit and Abort are called as those of a Host. A Linux host
	// does not send again: a message that is not accepted is lost.
	Deliver(c *TCP, h *wire.Header, payload []byte) Verdict
	Begin(c *TCP, h *wire.Header) (dst []byte, token any, v Verdict)
	Commit(c *TCP, h *wire.Header, token any)
	Abort(c *TCP, token any)
	// MsgDone gives m back to the host. It is called exactly once per Send.
	MsgDone(c *TCP, m *Msg, o Outcome)
	// PeerUp tells that the first lane came up, PeerDown that the last one is down.
	PeerUp(c *TCP)
	PeerDown(c *TCP, why error)
	// Congestion: the peer's congestion map changed.
	Congestion(c *TCP, m *cong.Map)
	// Dial connects a lane. Its source port should be the lane modulo
	// wire.MaxPaths; with must it is nothing else. HandleConnected or HandleFailed
	// with the same id follows.
	Dial(c *TCP, lane int, id uint64, must bool) error
	// Trace is called as that of a Host.
	Trace(c *TCP, event string, err error)
}

// TCPConfig of a TCP. Times are nanoseconds.
type TCPConfig struct {
	Local, Remote netip.Addr
	Lanes         int    // connections offered, a power of two up to wire.MaxPaths (8)
	StartSeq      uint64 // first sequence of every lane
	MinBackoff    int64  // 1 ms
	MaxBackoff    int64  // 1 s
	CloseTimeout  int64  // 1 s: what the peer does not end after Close is cut off
	IgnorePings   bool   // messages to port 0 go to nobody, handshakes among them
	Rand          func() uint64
	// Cong is the congestion map of the local address. It is sent on every first lane
	// that comes up, because the peer may remember an older one.
	Cong *cong.Map
	// Scratch is memory of at least MinScratch bytes in which frames are put
	// together. All TCPs of an owner share it.
	Scratch []byte
	Ctx     any // the host's own, returned by TCP.Ctx
}

// MinScratch is the least length of TCPConfig.Scratch in bytes.
const MinScratch = 64 << 10

// TCP is one end of the connections to a Linux host that speaks RDS/TCP. It has up
// to eight lanes, each a TCP connection with sequence numbers of its own. A socket's
// messages stay in one lane. The rules are the kernel's (net/rds/tcp*.c): the host
// with the smaller address connects; a message is acked when the peer's TCP has it;
// there are no operations. Only the owner's thread may call its methods.
//
// A TCP must not be dropped and made anew for the same peer: messages could arrive
// twice.
type TCP struct {
	cfg     TCPConfig
	host    TCPHost
	calls   upcalls
	now     int64
	smaller bool // ours is the smaller address: we connect
	closed  bool
	met     bool
	since   int64
	why     error
	stats   Stats

	lanes   [wire.MaxPaths]tcpLane
	n       int    // lanes in use: 1 until the handshake
	taken   int    // lanes that may have a connection, n or more: see learn
	known   bool   // the handshake is done
	gated   bool   // other lanes than the first wait until its backlog is through
	gate    uint64 // the backlog: sequences below this one
	gateEnd int64  // when its acks are enough
	bySPort bool   // the peer's source ports say its lanes
	chosen  bool   // ours do
	gen     uint32 // the peer's generation, 0 = never said
	up      int    // lanes
	dialID  uint64
	answers bool  // it has answered a probe
	told    bool  // PeerUp was called
	asked   int64 // when all lanes were asked for a sign of life

	remote  cong.Map
	doubt   doubt // whether remote is the newest
	congMap *cong.Map
	seen    seqTable // highest sequence received, by source port
	own     ownMsgs
	pieces  [][]byte
	arrived Arrived
}

// NewTCP returns an association that is Down.
func NewTCP(cfg TCPConfig, h TCPHost) *TCP {
	cfg.Local, cfg.Remote = cfg.Local.Unmap(), cfg.Remote.Unmap()
	if cfg.Cong == nil {
		cfg.Cong = new(cong.Map)
	}
	cfg.StartSeq = max(cfg.StartSeq, 1)
	cfg.MinBackoff = max(cfg.MinBackoff, 1)
	cfg.MaxBackoff = max(cfg.MaxBackoff, cfg.MinBackoff)
	if cfg.Lanes < 1 || cfg.Lanes > wire.MaxPaths || cfg.Lanes&(cfg.Lanes-1) != 0 {
		cfg.Lanes = wire.MaxPaths
	}
	if len(cfg.Scratch) < MinScratch {
		cfg.Scratch = make([]byte, MinScratch)
	}
	l, r := cfg.Local.As16(), cfg.Remote.As16()
	c := &TCP{cfg: cfg, host: h, n: 1, taken: 1, smaller: string(l[:]) < string(r[:]), congMap: cfg.Cong, pieces: make([][]byte, 0, maxPieces)}
	c.host = c.calls.tcpHost(h)
	for i := range c.lanes {
		c.lanes[i] = tcpLane{c: c, n: i, nextTx: cfg.StartSeq}
	}
	return c
}

// lane is the lane of what a socket sends.
func (c *TCP) lane(sport uint16) *tcpLane {
	return &c.lanes[(uint32(sport)*0x9e3779b1>>16)&uint32(c.n-1)]
}

// Send queues m. It never fails. Nothing is written before Flush. RDS/TCP has no
// operations, cookies and internal messages: a message with an operation ends
// OpRefused at once, with WCLocQPOpErr; a message with a cookie, which would make a
// Linux host end the process that receives it, ends OpRefused; an internal message
// ends Cancelled. On a closed TCP m ends Cancelled.
func (c *TCP) Send(m *Msg) {
	c.calls.called(callNote)
	m.priv = msgPriv{}
	m.WCStatus = verbs.WCSuccess
	c.stats.SendQueued++
	switch {
	case m.Op != nil:
		m.WCStatus, m.Bad = verbs.WCLocQPOpErr, m.Op
		c.finish(m, OpRefused)
	case m.Internal != 0, c.closed:
		c.finish(m, Cancelled)
	case m.DestCookie != 0 && !mutant.On(mutant.TCPCookieTaken):
		c.finish(m, OpRefused)
	default:
		c.lane(m.SPort).enqueue(m)
	}
}

// Cancel withdraws m as Conn.Cancel does. Bytes that were written may still arrive.
func (c *TCP) Cancel(m *Msg, o Outcome) (later bool) {
	c.calls.called(callCancel)
	p := &m.priv
	if p.list != nil {
		p.list.remove(m)
		c.finish(m, o)
		return false
	}
	if p.state == msgPosted { // half written: the rest has to follow
		p.state, p.outcome = msgEnding, o
		return true
	}
	return false
}

// GiveUp cancels a message whose time limit has passed, as Conn.GiveUp does.
func (c *TCP) GiveUp(m *Msg) (o Outcome, later bool) {
	o = GaveUp
	if !m.priv.posted {
		o = Withdrawn
	}
	return o, c.Cancel(m, o)
}

// CancelMatching withdraws the messages for which match is true.
func (c *TCP) CancelMatching(match func(*Msg) bool, o Outcome) {
	c.calls.called(callCancel)
	for i := range c.lanes {
		l := &c.lanes[i]
		for _, list := range []*msgList{&l.queue, &l.unacked} {
			for m := list.head; m != nil; {
				next := m.priv.next
				if !m.priv.own && match(m) {
					c.Cancel(m, o)
				}
				m = next
			}
		}
		if m := l.frag; m != nil && !m.priv.own && m.priv.state == msgPosted && match(m) {
			c.Cancel(m, o)
		}
	}
}

// Waiting does nothing: over RDS/TCP there are no internal messages.
func (c *TCP) Waiting(func(*Msg)) {}

// Withdraw does nothing, as Waiting.
func (c *TCP) Withdraw(*Msg) bool { return false }

// finish gives m back to its owner.
func (c *TCP) finish(m *Msg, o Outcome) {
	p := &m.priv
	p.state = msgIdle
	if p.own {
		c.own.give(m.Owner.(*ownMsg))
		return
	}
	c.stats.ended(o)
	c.host.MsgDone(c, m, o)
}

// newOwn takes a message of the TCP itself: a pong, a probe or the answer to one.
func (c *TCP) newOwn(sport, dport uint16) *Msg {
	m := &c.own.take().Msg
	m.SPort, m.DPort = sport, dport
	return m
}

// QueueCong queues the congestion map m of the local address, which changed. It is
// sent on the first lane that is up.
func (c *TCP) QueueCong(m *cong.Map) {
	c.calls.called(callNote)
	c.congMap = m
	c.stats.CongUpdateQueued++
	c.sendCong()
}

func (c *TCP) sendCong() {
	for i := range c.lanes[:c.taken] {
		if c.lanes[i].state == Up {
			c.lanes[i].congDirty = true
			return
		}
	}
}

// State is Up if a lane is, else the first that applies to any lane of
// Connecting, Error and Down.
func (c *TCP) State() State {
	if c.up > 0 {
		return Up
	}
	s := Down
	for i := range c.lanes[:c.taken] {
		switch c.lanes[i].state {
		case Connecting:
			return Connecting
		case Error:
			s = Error
		}
	}
	return s
}

// Ready reports whether a lane is up.
func (c *TCP) Ready() bool { return c.up > 0 }

// Kernel returns true: the peer is a Linux kernel, or behaves as one.
func (c *TCP) Kernel() bool { return true }

// RemoteCong returns the peer's congestion map, as Conn.RemoteCong.
func (c *TCP) RemoteCong() *cong.Map { return &c.remote }

// Instance returns 0: RDS/TCP does not tell one life of a peer from the next.
func (c *TCP) Instance() uint64 { return 0 }

// Stats returns the counters of all lanes. They go on changing.
func (c *TCP) Stats() *Stats { return &c.stats }

// Ctx returns TCPConfig.Ctx.
func (c *TCP) Ctx() any { return c.cfg.Ctx }

// NeedFlush says that Flush may have something to do.
func (c *TCP) NeedFlush() bool {
	for i := range c.lanes[:c.taken] {
		if c.lanes[i].needFlush() {
			return true
		}
	}
	return false
}

// Flush writes messages until the streams take no more or a bound is reached, and
// begins to connect the lanes that are needed. If it stopped at the bound, NeedFlush
// is true afterwards.
func (c *TCP) Flush(now int64) {
	c.calls.called(callDrive)
	c.now = now
	for i := range c.lanes[:c.taken] {
		l := &c.lanes[i]
		if !l.needFlush() {
			continue
		}
		if l.state == Down {
			l.dial()
		} else {
			l.write()
		}
	}
}

// Tick runs the timers that are due.
func (c *TCP) Tick(now int64) {
	c.calls.called(callDrive)
	c.now = now
	for i := range c.lanes[:c.taken] {
		c.lanes[i].tick()
	}
	c.resolve()
}

// NextTimeout returns when Tick has something to do, 0 = not by itself.
func (c *TCP) NextTimeout() (t int64) {
	for i := range c.lanes[:c.taken] {
		t = sooner(t, c.lanes[i].timeout())
	}
	return sooner(t, c.doubt.at)
}

// Reset ends all lanes, or the attempts to connect them. They are then made anew. If
// all are Down it connects at once.
func (c *TCP) Reset(now int64, why error) {
	c.calls.called(callDrive)
	c.now = now
	for i := range c.lanes[:c.taken] {
		l := &c.lanes[i]
		switch l.state {
		case Up:
			l.finishStream(why)
		case Connecting:
			if l.doomed = why; l.poke {
				l.abandon(why)
			}
		case Down:
			l.backoff, l.retryAt = 0, 0
		}
	}
}

// CutOff breaks off all lanes at once, without reading the rest of what the peer has
// sent. It is for a peer that is no longer allowed.
func (c *TCP) CutOff(now int64, why error) {
	c.calls.called(callDrive)
	c.Reset(now, why)
	for i := range c.lanes[:c.taken] {
		if l := &c.lanes[i]; l.stream != nil {
			l.down(true)
		}
	}
}

// Close ends every message Cancelled, at once or when it has been written whole,
// and the association for good. It is over when State is Down.
func (c *TCP) Close(now int64) {
	c.calls.called(callDrive)
	c.now = now
	if c.closed {
		return
	}
	c.closed = true
	for i := range c.lanes {
		l := &c.lanes[i]
		c.endAll(&l.queue)
		c.endAll(&l.unacked)
		if m := l.frag; m != nil && m.priv.state == msgPosted {
			m.priv.state, m.priv.outcome = msgEnding, Cancelled
		}
		l.retryAt, l.again = 0, false
		switch l.state {
		case Up:
			l.finishStream(ErrClosed)
		case Connecting:
			l.abandon(ErrClosed)
		case Error:
			l.awaitEnd()
		}
	}
}

func (c *TCP) endAll(list *msgList) {
	for list.head != nil {
		m := list.head
		list.remove(m)
		c.finish(m, Cancelled)
	}
}

// ForgetPartial withdraws the message that is arriving in pieces and for which Begin
// returned token. Its memory is the host's again, and its other pieces are skipped.
func (c *TCP) ForgetPartial(token any) {
	c.calls.called(callForget)
	for i := range c.lanes {
		if l := &c.lanes[i]; l.token != nil && l.token == token {
			l.token, l.dst = nil, nil
			l.body = bodySkip
		}
	}
}

// Missing returns how many bytes are still to come of the message for which Begin
// returned token; 0 if that message is not arriving.
func (c *TCP) Missing(token any) int {
	for i := range c.lanes {
		if l := &c.lanes[i]; l.token != nil && l.token == token {
			return l.left
		}
	}
	return 0
}

// seqTable has a sequence for each port; what was never set is 0.
type seqTable struct{ pages [256]*[256]uint64 }

func (t *seqTable) at(port uint16) *uint64 {
	p := &t.pages[port>>8]
	if *p == nil {
		*p = new([256]uint64)
	}
	return &(*p)[port&255]
}

func (c *TCP) String() string {
	return fmt.Sprintf("%v to %v", c.cfg.Local, c.cfg.Remote)
}
