package tcp

import (
	"fmt"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/internal/timer"
	"github.com/rdsd/rdsd/conn/internal/upcalls"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// Conn is one end of the connections to a Linux host that speaks RDS/TCP. It has up
// to eight lanes, each a TCP connection with sequence numbers of its own. A socket's
// messages stay in one lane. The rules are the kernel's (net/rds/tcp*.c): the host
// with the smaller address connects; a message is acked when the peer's TCP has it;
// there are no operations. Only its owner's thread may call its methods.
//
// A Conn must not be dropped and made anew for the same peer: messages could arrive
// twice.
type Conn struct {
	cfg     Config
	host    Host
	calls   upcalls.Calls
	now     int64 // of the current call
	since   int64 // when the state of the association began
	smaller bool  // ours is the smaller address: we connect
	chosen  bool  // our source ports say the lanes
	closed  bool
	halted  bool // nothing is connected until Resume
	met     bool
	told    bool // PeerUp was called
	why     error
	stats   conn.Stats

	lanes  [wire.MaxPaths]lane
	n      int // lanes in use: 1 until the handshake
	taken  int // lanes that may have a connection, n or more: see learn
	up     int // lanes
	dialID uint64
	asked  int64 // when all lanes were asked for a sign of life
	peer   peer
	gate   gate

	cong    congestion
	own     msg.OwnMsgs
	cuts    msg.Cutter
	pieces  [][]byte // of the write that is being put together
	seen    seqTable // highest sequence received, by source port
	arrived conn.Arrived
}

// New returns an association that is Down.
func New(cfg Config, h Host) *Conn {
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
	c := &Conn{cfg: cfg, n: 1, taken: 1, smaller: string(l[:]) < string(r[:]), cong: congestion{own: cfg.Cong}, pieces: make([][]byte, 0, maxPieces)}
	c.host = checked(&c.calls, h)
	for i := range c.lanes {
		c.lanes[i] = lane{c: c, n: i, out: sending{nextTx: cfg.StartSeq}}
	}
	return c
}

// lane is the lane of what a socket sends.
func (c *Conn) lane(sport uint16) *lane {
	return &c.lanes[(uint32(sport)*0x9e3779b1>>16)&uint32(c.n-1)]
}

// Send queues m. It never fails. Nothing is written before Flush. RDS/TCP has no
// operations, cookies and internal messages: a message with an operation ends
// OpRefused at once, with WCLocQPOpErr; a message with a cookie, which would make a
// Linux host end the process that receives it, ends OpRefused; an internal message
// ends Cancelled. On a closed Conn m ends Cancelled.
func (c *Conn) Send(m *msg.Msg) {
	c.calls.Note()
	m.Track = msg.Track{}
	m.WCStatus = verbs.WCSuccess
	c.stats.SendQueued += uint64(m.Datagrams())
	switch {
	case m.Op != nil:
		m.WCStatus, m.Bad = verbs.WCLocQPOpErr, m.Op
		c.finish(m, msg.OpRefused)
	case m.Internal != 0, c.closed:
		c.finish(m, msg.Cancelled)
	case m.DestCookie != 0:
		c.finish(m, msg.OpRefused)
	default:
		c.lane(m.SPort).enqueue(m)
	}
}

// newOwn takes a message of the Conn itself: a pong, a probe or the answer to one.
func (c *Conn) newOwn(sport, dport uint16) *msg.Msg {
	m := &c.own.Take().Msg
	m.SPort, m.DPort = sport, dport
	return m
}

// State is Up if a lane is, else the first that applies to any lane of
// Connecting, Error and Down.
func (c *Conn) State() conn.State {
	if c.up > 0 {
		return conn.Up
	}
	s := conn.Down
	for i := range c.lanes[:c.taken] {
		switch c.lanes[i].state {
		case conn.Connecting:
			return conn.Connecting
		case conn.Error:
			s = conn.Error
		}
	}
	return s
}

// Ready reports whether a lane is up.
func (c *Conn) Ready() bool { return c.up > 0 }

// Instance returns 0: RDS/TCP does not tell one life of a peer from the next.
func (c *Conn) Instance() uint64 { return 0 }

// Stats returns the counters of all lanes. They go on changing.
func (c *Conn) Stats() *conn.Stats { return &c.stats }

// Ctx returns Config.Ctx.
func (c *Conn) Ctx() any { return c.cfg.Ctx }

// NeedFlush says that Flush may have something to do.
func (c *Conn) NeedFlush() bool {
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
func (c *Conn) Flush(now int64) {
	c.calls.Drive()
	c.now = now
	for i := range c.lanes[:c.taken] {
		l := &c.lanes[i]
		if !l.needFlush() {
			continue
		}
		if l.state == conn.Down {
			l.dial()
		} else {
			l.write()
		}
	}
}

// Tick runs the timers that are due.
func (c *Conn) Tick(now int64) {
	c.calls.Drive()
	c.now = now
	for i := range c.lanes[:c.taken] {
		c.lanes[i].tick()
	}
	c.resolve()
}

// NextTimeout returns when Tick has something to do, 0 = not by itself.
func (c *Conn) NextTimeout() (t int64) {
	for i := range c.lanes[:c.taken] {
		t = timer.Sooner(t, c.lanes[i].timeout())
	}
	return timer.Sooner(t, c.cong.doubt.at)
}

// Reset ends all lanes, or the attempts to connect them. They are then made anew. If
// all are Down it connects at once.
func (c *Conn) Reset(now int64, why error) {
	c.calls.Drive()
	c.now = now
	for i := range c.lanes[:c.taken] {
		l := &c.lanes[i]
		switch l.state {
		case conn.Up:
			l.finishStream(why)
		case conn.Connecting:
			if l.attempt.doomed = why; l.attempt.poke {
				l.abandon(why)
			}
		case conn.Down:
			l.redial.Ceiling, l.redial.At = 0, 0
		}
	}
}

// CutOff breaks off all lanes at once, without reading the rest of what the peer has
// sent. It is for a peer that is no longer allowed.
func (c *Conn) CutOff(now int64, why error) {
	c.calls.Drive()
	c.Reset(now, why)
	for i := range c.lanes[:c.taken] {
		if l := &c.lanes[i]; l.stream != nil {
			l.down(true)
		}
	}
}

// Close ends every message Cancelled, at once or when it has been written whole,
// and the association for good. It is over when State is Down.
func (c *Conn) Close(now int64) {
	c.calls.Drive()
	c.now = now
	if c.closed {
		return
	}
	c.closed = true
	for i := range c.lanes {
		l := &c.lanes[i]
		c.endAll(&l.out.queue)
		c.endAll(&l.out.unacked)
		if m := l.out.frag; m != nil && m.Track.State == msg.Posted {
			m.Track.State, m.Track.Outcome = msg.Ending, msg.Cancelled
		}
		l.redial.At, l.again = 0, false
		switch l.state {
		case conn.Up:
			l.finishStream(conn.ErrClosed)
		case conn.Connecting:
			l.abandon(conn.ErrClosed)
		case conn.Error:
			l.awaitEnd()
		}
	}
}

func (c *Conn) String() string {
	return fmt.Sprintf("%v to %v", c.cfg.Local, c.cfg.Remote)
}
