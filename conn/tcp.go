package conn

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/verbs"
)

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
	now     int64 // of the current call
	since   int64 // when the state of the association began
	smaller bool  // ours is the smaller address: we connect
	chosen  bool  // our source ports say the lanes
	closed  bool
	halted  bool // nothing is connected until Resume
	met     bool
	told    bool // PeerUp was called
	why     error
	stats   Stats

	lanes  [wire.MaxPaths]tcpLane
	n      int // lanes in use: 1 until the handshake
	taken  int // lanes that may have a connection, n or more: see learn
	up     int // lanes
	dialID uint64
	asked  int64 // when all lanes were asked for a sign of life
	peer   tcpPeer
	gate   tcpGate

	cong    tcpCong
	own     ownMsgs
	cuts    cutter
	pieces  [][]byte // of the write that is being put together
	seen    seqTable // highest sequence received, by source port
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
	c := &TCP{cfg: cfg, n: 1, taken: 1, smaller: string(l[:]) < string(r[:]), cong: tcpCong{own: cfg.Cong}, pieces: make([][]byte, 0, maxPieces)}
	c.host = c.calls.tcpHost(h)
	for i := range c.lanes {
		c.lanes[i] = tcpLane{c: c, n: i, out: tcpOut{nextTx: cfg.StartSeq}}
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
	c.stats.SendQueued += uint64(m.datagrams())
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

// newOwn takes a message of the TCP itself: a pong, a probe or the answer to one.
func (c *TCP) newOwn(sport, dport uint16) *Msg {
	m := &c.own.take().Msg
	m.SPort, m.DPort = sport, dport
	return m
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
	return sooner(t, c.cong.doubt.at)
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
			if l.attempt.doomed = why; l.attempt.poke {
				l.abandon(why)
			}
		case Down:
			l.redial.ceiling, l.redial.at = 0, 0
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
		c.endAll(&l.out.queue)
		c.endAll(&l.out.unacked)
		if m := l.out.frag; m != nil && m.priv.state == msgPosted {
			m.priv.state, m.priv.outcome = msgEnding, Cancelled
		}
		l.redial.at, l.again = 0, false
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

func (c *TCP) String() string {
	return fmt.Sprintf("%v to %v", c.cfg.Local, c.cfg.Remote)
}
