package conn

import (
	"github.com/rdsd/rdsd/conn/internal/timer"
	"github.com/rdsd/rdsd/conn/internal/upcalls"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// Conn is one end of a connection. Only its owner's thread may call its methods.
// Times are nanoseconds of one clock that never runs back; 0 means none.
//
// A Conn knows which messages have arrived. If it is dropped and made anew for
// the same peer, messages could arrive twice, unless the new one has the old one's
// Past in Config.Past or another Config.Instance.
type Conn struct {
	cfg    Config
	host   Host
	calls  upcalls.Calls
	state  State
	now    int64 // of the current call
	since  int64 // when state began
	lostAt int64 // when the last connection was down
	closed bool
	why    error // why the last connection or attempt ended
	stats  Stats
	served verbs.Served // by the queue pairs that are gone
	dirty  bool         // Flush may have something to do

	link    link
	request request
	redial  timer.Redial
	later   int64 // since when the peer rejects for a while only, 0: it does not
	halt    halting
	quiet   silence
	narrow  narrowed
	k       kernelState
	*Scratch

	peer     uint64 // the instance of its daemon that was met last, 0: none
	cong     congestion
	settling settlement
	rtt      rtt

	out     outbox
	stops   portStops
	own     msg.OwnMsgs
	cuts    msg.Cutter
	sq      sendQueue
	ctl     ctlParts
	credits credits

	in  receiver
	ack ackDue
}

// New returns a connection that is Down. It connects when something is sent,
// or when the peer does.
func New(cfg Config, h Host) *Conn {
	cfg.Local, cfg.Remote = cfg.Local.Unmap(), cfg.Remote.Unmap()
	cfg.MaxSend = max(cfg.MaxSend, wire.MinMaxSend)
	cfg.RecvCredits = max(cfg.RecvCredits, MinCredits)
	cfg.StartSeq, cfg.Paths = max(cfg.StartSeq, 1), min(max(cfg.Paths, 1), wire.MaxPaths)
	cfg.MinBackoff = max(cfg.MinBackoff, 1)
	cfg.MaxBackoff = max(cfg.MaxBackoff, cfg.MinBackoff)
	if cfg.Scratch == nil {
		cfg.Scratch = &Scratch{}
	}
	c := &Conn{
		cfg:     cfg,
		Scratch: cfg.Scratch,
		out:     outbox{nextTx: cfg.StartSeq},
		in:      receiver{refusing: make(map[uint16]struct{})},
		own:     msg.OwnMsgs{All: cfg.Owing},
	}
	c.stops.ports.Of(&c.out.queue, &c.out.rtx, &c.out.unacked)
	c.host = checked(&c.calls, h)
	c.takeOver(cfg.Past)
	c.UseAttr(cfg.Attr)
	return c
}

// UseAttr tells the Conn that its next queue pair is of the device with
// attributes a. The host calls it from NewQP.
func (c *Conn) UseAttr(a verbs.DeviceAttr) {
	c.calls.Attr()
	c.cfg.Attr = a
	c.k.placed = a.Caps&verbs.CapPlacedCQ != 0
}

// State returns the connection's state.
func (c *Conn) State() State { return c.state }

// Ready reports whether the connection is Up and the handshake complete.
func (c *Conn) Ready() bool { return c.state == Up && c.link.ready }

// Asks reports whether the peer, whose connection is ready, answers ASK.
func (c *Conn) Asks() bool { return c.link.hello.Features&wire.FeatureAsk != 0 }

// Paths returns how many paths both sides want, once the peer's HELLO has come; else 1.
func (c *Conn) Paths() int { return min(c.cfg.Paths, c.link.hello.Paths()) }

// Instance returns the instance of the peer's daemon that this connection met
// last; 0 if it has met none.
func (c *Conn) Instance() uint64 { return c.peer }

// RetryAt returns when the next attempt is due while the Conn is Down, 0: none is.
func (c *Conn) RetryAt() int64 { return c.redial.At }

// Stats returns the connection's counters. They go on changing.
func (c *Conn) Stats() *Stats { return &c.stats }

// Send queues m. It never fails. Nothing is posted before Flush. Internal messages
// go ahead of datagrams that wait. A message to a port that is Stopped, or stops before m is
// posted, ends with Returned. On a closed Conn m ends Cancelled at once, and so
// does an internal message to a kernel.
func (c *Conn) Send(m *msg.Msg) {
	c.calls.Note()
	m.Track = msg.Track{}
	m.WCStatus = verbs.WCSuccess
	c.stats.SendQueued += uint64(m.Datagrams())
	if c.closed {
		c.finish(m, msg.Cancelled)
		return
	}
	c.enqueue(m)
}

func (c *Conn) enqueue(m *msg.Msg) {
	m.Track.State = msg.Queued
	switch m.Internal {
	case 0:
		c.out.queue.Push(m)
	case wire.TypeNoSock, wire.TypeRefused, wire.TypeBound, wire.TypeResult:
		c.out.notices.Push(m)
	default:
		if c.k.on && c.state == Up { // it would not know what to do with it
			c.finish(m, msg.Cancelled)
			return
		}
		c.out.control.Push(m)
	}
	c.dirty = true
}

// Queued returns how much work the messages are that wait to be posted: their bytes,
// and 64 for each header that they need.
func (c *Conn) Queued() int {
	q := &c.out.queue
	if c.k.on {
		return q.Bytes + msg.FrameWork*q.Datagrams()
	}
	return q.Bytes + msg.FrameWork*q.N
}

// OpsUnderWay returns the bytes of all operations that are to be posted or are not locally
// complete.
func (c *Conn) OpsUnderWay() uint64 { return c.out.queue.Ops + c.sq.opBytes }

// Waiting calls f for every message of the host that would still be sent to a peer
// that has restarted. f may call Send.
func (c *Conn) Waiting(f func(*msg.Msg)) {
	c.calls.Waiting()
	each := func(l *msg.List, all bool) {
		for m := l.Head; m != nil; m = m.Track.Next {
			if !m.Track.Own && !m.Track.Op.Posted() && (all || !m.Track.Posted) && !(m.IsCut() && m.Track.Posted) {
				f(m)
			}
		}
	}
	each(&c.out.rtx, false)
	each(&c.out.control, true)
	for _, st := range c.stops.keeping() {
		for _, l := range st.lists() {
			each(l, true)
		}
	}
	for x := c.cuts.Runs; x != nil; x = x.Next {
		if run := x.Run; !run.Track.Posted && run.Track.List == nil && !x.Stopped {
			f(run)
		}
	}
	each(&c.out.queue, true)
}

// Reset breaks off the connection, or the attempt to connect, and passes why to
// PeerDown. It is then made anew as after any other break. A Conn that is Down
// connects at once if it has something to send.
func (c *Conn) Reset(now int64, why error) {
	c.calls.Drive()
	c.now = now
	switch c.state {
	case Up:
		c.fail(why)
	case Connecting:
		c.link.resetDue = true
		c.abandon(why)
		c.reconnect()
	case Down:
		c.redial.Ceiling, c.redial.At = 0, 0
		c.reconnect()
	}
}

// Close ends the connection for good, and every message with Cancelled, at once or
// when the message's work requests have completed. An ack that is owed goes out before that. It does not
// cover a message whose notice was not posted. Close is complete when State is Down.
func (c *Conn) Close(now int64) {
	c.calls.Drive()
	c.now = now
	if c.closed {
		return
	}
	c.closed = true
	stays := c.state == Up && c.lastAck() // with the notices that bound it
	for _, l := range []*msg.List{&c.out.rtx, &c.out.notices, &c.out.control, &c.out.queue, &c.out.unacked} {
		c.endAll(l, msg.Cancelled)
	}
	for _, st := range c.stops.keeping() {
		for _, l := range st.lists() {
			c.endAll(l, msg.Cancelled)
		}
	}
	c.rejectPending()
	switch c.state {
	case Up:
		if !stays {
			c.fail(ErrClosed)
		}
	case Connecting:
		c.abandon(ErrClosed)
	}
	c.redial.At, c.settling.expires, c.halt.again = 0, 0, 0
}

// owesFor is how long in ns after a connection the peer is connected to for what is only owed to it.
// A peer that waits for it connects itself.
const owesFor = 30_000_000_000

// outstanding says that something is to be sent or acked.
func (c *Conn) outstanding() bool { return !c.closed && (c.out.n() > 0 || c.needed()) }

// wanted says that there is a reason to connect.
func (c *Conn) wanted() bool {
	return !c.closed && (c.needed() || c.out.n() > 0 && c.now-c.lostAt < owesFor)
}

// needed is outstanding without what is only owed to the peer.
func (c *Conn) needed() bool {
	return c.out.wanted() || c.stops.any() || c.host.HasWaiting(c)
}

// Tick runs the timers that are due.
func (c *Conn) Tick(now int64) {
	c.calls.Drive()
	c.now = now
	if timer.Due(c.settling.expires, now) {
		c.settleExpired()
	}
	switch c.state {
	case Down:
		if timer.Due(c.redial.At, now) {
			c.redial.At = 0
			if c.mayDial() {
				c.dial()
			}
		}
	case Connecting:
		if timer.Due(c.link.deadline, now) {
			c.connectFailed(ErrTimeout)
		}
	case Up:
		if !c.link.ready || c.closed {
			if timer.Due(c.link.deadline, now) {
				c.fail(ErrTimeout)
			}
		} else {
			c.tickReady()
		}
	case Error:
		if timer.Due(c.link.deadline, now) {
			c.down()
		}
	}
}

// NextTimeout returns when Tick is due; 0 if no timer runs.
func (c *Conn) NextTimeout() int64 {
	t := c.settling.expires
	switch c.state {
	case Down:
		t = timer.Sooner(t, c.redial.At)
	case Connecting, Error:
		t = timer.Sooner(t, c.link.deadline)
	case Up:
		if !c.link.ready || c.closed {
			t = timer.Sooner(t, c.link.deadline)
		} else {
			t = timer.Sooner(timer.Sooner(t, c.k.prompt), c.quiet.lookAt)
			if !c.ack.now {
				t = timer.Sooner(t, c.ack.at)
			}
		}
	}
	return t
}
