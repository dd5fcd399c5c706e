package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// MinCredits is the least number of receive buffers that a side may grant. The
// last credit is kept for a frame that returns credits; with fewer credits than
// this both sides could stop.
const MinCredits = 4

// maxCredits is the most a peer may grant.
const maxCredits = 1 << 20

// Why a connection ended, for Trace, PeerDown and Info.LastError.
var (
	ErrProtocol     = errors.New("conn: the peer broke the protocol")
	ErrIncompatible = errors.New("conn: incompatible peer")
	ErrTimeout      = errors.New("conn: the handshake took too long")
	ErrRejected     = errors.New("conn: the peer rejected the connection")
	ErrDisconnected = errors.New("conn: disconnected")
	ErrReplaced     = errors.New("conn: the peer connected anew")
	ErrKernel       = fmt.Errorf("%w: it says that it is a Linux kernel, and is not in peers.kernel", ErrIncompatible)
	ErrStale        = errors.New("conn: the peer's daemon may be gone: another one was met since")
	ErrClosed       = errors.New("conn: closed")
	ErrNoBuffer     = errors.New("conn: no send buffer free")
	ErrCompletion   = errors.New("conn: work request failed")
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
	calls  upcalls
	state  State
	now    int64 // of the current call
	since  int64
	closed bool
	stats  Stats

	// The queue pair and its handshake.
	qp          verbs.QP
	qpNum       uint32
	active      bool       // we dialled
	helloSeen   bool       // the peer's HELLO is in hello
	ready       bool       // both HELLOs are through
	deaf        bool       // the peer broke the protocol: nothing it sent counts any more
	resetDue    bool       // PeerDown is owed for an attempt that was reset
	hello       wire.Hello // the peer's
	maxSend     int        // largest SEND, both ways
	readDepth   int
	deadline    int64 // of the handshake, or of draining
	why         error
	peerAck     uint64          // ack_seq of its private data
	pending     verbs.RequestID // waits until the old queue pair has drained
	isPending   bool
	pendingFrom wire.Private // what it came with
	k           kernelState

	// Connecting again.
	backoff int64 // ceiling of the next delay, 0: at once
	retryAt int64
	quiet   silence

	// The peer, over connections.
	peer     uint64 // its instance, 0 = never met
	remote   cong.Map
	settleAt int64 // posted operations become Unknown

	// Sending. Every message is on one of these, in a stop's queue, or ending.
	nextTx     uint64
	ackMax     uint64  // highest ack seen
	gate       uint64  // while settling: notices up to here are still to come
	settling   bool    // acks settle nothing yet
	rtx        msgList // sequence assigned; goes first, in order
	notices    msgList // NOSOCK, REFUSED and BOUND
	control    msgList // GRANT, REVOKE, REVOKED
	queue      msgList // datagrams and operations
	unacked    msgList // posted, by sequence
	frag       *Msg    // half sent
	stops      []*portStop
	stopOf     map[uint16]*portStop
	releaseDue bool
	dirty      bool // Flush may have something to do
	congMap    *cong.Map
	congDirty  bool
	congTold   bool // the peer was sent a map with a bit set
	own        ownMsgs

	// The send queue.
	recs     []sendRec // ring: one per SEND; grows with what is outstanding
	maxRecs  int
	recHead  uint64
	recTail  uint64
	lost     uint64 // records from here on have no completion to come; 0 = none
	sqSize   int
	sqUsed   int
	reads    int      // READs and atomics outstanding
	opBytes  uint64   // of all operations outstanding
	ctl      *SendBuf // slots of slotLen bytes: headers, acks, HELLO
	slots    uint64   // how many, a power of two
	slotHead uint64
	slotTail uint64
	*Scratch
	txh     wire.Header
	credits uint32 // SENDs the peer has room for

	// Receiving.
	rxLast   uint64 // highest sequence received
	rxh      wire.Header
	asm      assembly
	refusing map[uint16]struct{}
	owed     uint32 // receive buffers to grant
	granted  uint32 // SENDs the peer may still post
	ackNow   bool
	ackAt    int64
	ackBytes int
	untilAsk int // messages to send until one asks for an ack
	held     bool
	arrived  Arrived
}

// New returns a connection that is Down. It connects when something is sent,
// or when the peer does.
func New(cfg Config, h Host) *Conn {
	cfg.Local, cfg.Remote = cfg.Local.Unmap(), cfg.Remote.Unmap()
	cfg.MaxSend = max(cfg.MaxSend, wire.MinMaxSend)
	cfg.RecvCredits = max(cfg.RecvCredits, MinCredits)
	cfg.StartSeq = max(cfg.StartSeq, 1)
	cfg.MinBackoff = max(cfg.MinBackoff, 1)
	cfg.MaxBackoff = max(cfg.MaxBackoff, cfg.MinBackoff)
	if cfg.Scratch == nil {
		cfg.Scratch = &Scratch{}
	}
	c := &Conn{
		cfg:     cfg,
		host:    h,
		nextTx:  cfg.StartSeq,
		stopOf:  make(map[uint16]*portStop),
		Scratch: cfg.Scratch,

		refusing: make(map[uint16]struct{}),
	}
	c.host = c.calls.host(h)
	c.takeOver(cfg.Past)
	c.UseAttr(cfg.Attr)
	return c
}

// UseAttr tells the Conn that its next queue pair is of the device with
// attributes a. The host calls it from NewQP.
func (c *Conn) UseAttr(a verbs.DeviceAttr) {
	c.calls.called(callAttr)
	c.cfg.Attr = a
	c.k.placed = a.Caps&verbs.CapPlacedCQ != 0
}

// State returns the connection's state.
func (c *Conn) State() State { return c.state }

// Ready reports whether the connection is Up and the handshake complete.
func (c *Conn) Ready() bool { return c.state == Up && c.ready }

// RemoteCong returns the peer's congestion map. It belongs to the Conn: it must not
// be changed, and is valid until the next call.
func (c *Conn) RemoteCong() *cong.Map { return &c.remote }

// Instance returns the instance of the peer's daemon that this connection met
// last; 0 if it has met none.
func (c *Conn) Instance() uint64 { return c.peer }

// Stats returns the connection's counters. They go on changing.
func (c *Conn) Stats() *Stats { return &c.stats }

// Send queues m. It never fails. Nothing is posted before Flush. Internal messages
// go ahead of datagrams that wait. On a closed Conn m ends Cancelled at once.
func (c *Conn) Send(m *Msg) {
	c.calls.called(callNote)
	m.priv = msgPriv{}
	m.WCStatus = verbs.WCSuccess
	c.stats.SendQueued++
	if c.closed {
		c.finish(m, Cancelled)
		return
	}
	c.enqueue(m)
}

func (c *Conn) enqueue(m *Msg) {
	m.priv.state = msgQueued
	switch m.Internal {
	case 0:
		c.queue.push(m)
	case wire.TypeNoSock, wire.TypeRefused, wire.TypeBound:
		c.notices.push(m)
	default:
		if c.k.on && c.Ready() { // it would not know what to do with it
			c.finish(m, Cancelled)
			return
		}
		c.control.push(m)
	}
	c.dirty = true
}

// Queued returns how much work the messages are that wait to be posted: their bytes
// of payload, and 64 for each message.
func (c *Conn) Queued() int { return c.queue.bytes + frameWork*c.queue.n }

// frameWork is what a message costs besides its payload, in bytes copied.
const frameWork = 64

// OpsUnderWay returns the bytes of all operations that are not locally complete,
// whether they are posted or not.
func (c *Conn) OpsUnderWay() uint64 { return c.queue.ops + c.opBytes }

// Waiting calls f for every message of the host that would still be sent to a peer
// that has restarted. f may call Send.
func (c *Conn) Waiting(f func(*Msg)) {
	c.calls.called(callWaiting)
	each := func(l *msgList, all bool) {
		for m := l.head; m != nil; m = m.priv.next {
			if !m.priv.own && !m.priv.opPosted && (all || !m.priv.posted) {
				f(m)
			}
		}
	}
	each(&c.rtx, false)
	each(&c.control, true)
	for _, st := range c.stops {
		for _, l := range st.lists() {
			each(l, true)
		}
	}
	each(&c.queue, true)
}

// Withdraw ends m, an internal message of the host, with Cancelled and returns true,
// if the peer knows nothing of m. It returns false if m was posted, or if a HELLO
// has announced its sequence number: the peer then waits for it.
func (c *Conn) Withdraw(m *Msg) bool {
	c.calls.called(callWithdraw)
	l := m.priv.list
	if l == nil || m.priv.posted || m.priv.seq != 0 && c.state == Up {
		return false
	}
	l.remove(m)
	c.end(m, Cancelled)
	return true
}

// QueueCong queues the congestion map m of the local address, which changed. The
// Conn keeps m and reads it when it sends: several changes before the next Flush
// are sent as one.
func (c *Conn) QueueCong(m *cong.Map) {
	c.calls.called(callNote)
	c.congMap = m
	c.congDirty = true
	c.dirty = true
	c.stats.CongUpdateQueued++
}

// Cancel withdraws m as CancelMatching does. m was passed to Send and has not
// ended. later is true if m ends when its work requests have completed, and false
// if it has ended when Cancel returns.
func (c *Conn) Cancel(m *Msg, o Outcome) (later bool) {
	c.calls.called(callCancel)
	l := m.priv.list
	if l == nil {
		return false
	}
	later = m.priv.refs > 0 || m == c.frag
	l.remove(m)
	c.end(m, o)
	return later
}

// GiveUp cancels a message whose time limit has passed. It ends with Withdrawn if
// it was never sent, else with GaveUp. later is as in Cancel.
func (c *Conn) GiveUp(m *Msg) (o Outcome, later bool) {
	o = GaveUp
	if m.priv.seq == 0 { // never posted, or refused since
		o = Withdrawn
	}
	return o, c.Cancel(m, o)
}

// CancelMatching withdraws the messages for which match is true; they end with
// outcome o. A message that no work request uses ends inside this call, another
// one when its work requests have completed. A message that was posted may still
// arrive.
func (c *Conn) CancelMatching(match func(*Msg) bool, o Outcome) {
	c.calls.called(callCancel)
	c.cancelIn(&c.rtx, match, o)
	c.cancelIn(&c.control, match, o)
	for _, st := range c.stops {
		for _, l := range st.lists() {
			c.cancelIn(l, match, o)
		}
	}
	c.cancelIn(&c.queue, match, o)
	c.cancelIn(&c.unacked, match, o)
}

func (c *Conn) cancelIn(l *msgList, match func(*Msg) bool, o Outcome) {
	for m := l.head; m != nil; {
		next := m.priv.next
		if !m.priv.own && match(m) {
			l.remove(m)
			c.end(m, o)
		}
		m = next
	}
}

// Reset breaks off the connection, or the attempt to connect, and passes why to
// PeerDown. It is then made anew as after any other break. A Conn that is Down
// connects at once if it has something to send.
func (c *Conn) Reset(now int64, why error) {
	c.calls.called(callDrive)
	c.now = now
	switch c.state {
	case Up:
		c.fail(why)
	case Connecting:
		c.resetDue = true
		c.abandon(why)
		c.reconnect()
	case Down:
		c.backoff, c.retryAt = 0, 0
		c.reconnect()
	}
}

// Close ends the connection for good, and every message with Cancelled, at once or
// when the message's work requests have completed. It is complete when State is
// Down.
func (c *Conn) Close(now int64) {
	c.calls.called(callDrive)
	c.now = now
	if c.closed {
		return
	}
	c.closed = true
	for _, l := range []*msgList{&c.rtx, &c.notices, &c.control, &c.queue, &c.unacked} {
		c.endAll(l, Cancelled)
	}
	for _, st := range c.stops {
		for _, l := range st.lists() {
			c.endAll(l, Cancelled)
		}
	}
	c.rejectPending()
	switch c.state {
	case Up:
		c.fail(ErrClosed)
	case Connecting:
		c.abandon(ErrClosed)
	}
	c.retryAt, c.settleAt = 0, 0
}

// wanted says that there is a reason to connect.
func (c *Conn) wanted() bool {
	if c.closed {
		return false
	}
	if c.rtx.n+c.notices.n+c.control.n+c.queue.n+c.unacked.n > 0 {
		return true
	}
	for _, st := range c.stops {
		if st.refused.n+st.held.n > 0 {
			return true
		}
	}
	return false
}

// Tick runs the timers that are due.
func (c *Conn) Tick(now int64) {
	c.calls.called(callDrive)
	c.now = now
	if due(c.settleAt, now) {
		c.settleExpired()
	}
	switch c.state {
	case Down:
		if due(c.retryAt, now) {
			c.retryAt = 0
			if c.wanted() {
				c.dial()
			}
		}
	case Connecting:
		if due(c.deadline, now) {
			c.connectFailed(ErrTimeout)
		}
	case Up:
		if !c.ready {
			if due(c.deadline, now) {
				c.fail(ErrTimeout)
			}
		} else {
			c.tickReady()
		}
	case Error:
		if due(c.deadline, now) {
			c.down()
		}
	}
}

// NextTimeout returns when Tick is due; 0 if no timer runs.
func (c *Conn) NextTimeout() int64 {
	t := c.settleAt
	switch c.state {
	case Down:
		t = sooner(t, c.retryAt)
	case Connecting, Error:
		t = sooner(t, c.deadline)
	case Up:
		if !c.ready {
			t = sooner(t, c.deadline)
		} else {
			t = sooner(sooner(t, c.k.prompt), c.quiet.lookAt)
			if !c.ackNow {
				t = sooner(t, c.ackAt)
			}
		}
	}
	return t
}

func due(t, now int64) bool { return t != 0 && t <= now }

func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Info returns a snapshot of the connection.
func (c *Conn) Info() Info {
	i := Info{
		Local: c.cfg.Local, Remote: c.cfg.Remote, Lane: c.cfg.Lane,
		State: c.state, Ready: c.Ready(), Kernel: c.k.on, Since: c.since,
		Instance: c.peer, Met: c.peer != 0, NextTx: c.nextTx, LastRx: c.rxLast, LastAck: c.ackMax,
		Unacked: c.unacked.n, UnackedBytes: c.unacked.bytes,
		Credits: c.credits, CreditsOwed: c.owed,
		OutstandingWRs: c.sqUsed, MaxSend: c.maxSend,
		RetryAt: c.retryAt, LastError: c.why, Stats: c.stats,
	}
	for _, l := range []*msgList{&c.rtx, &c.notices, &c.control, &c.queue} {
		i.Queued += l.n
		i.QueuedBytes += l.bytes
	}
	for _, st := range c.stops {
		i.Stopped += st.refused.n + st.held.n
		i.Queued += st.refused.n + st.held.n
		i.QueuedBytes += st.refused.bytes + st.held.bytes
	}
	return i
}

// Ctx returns Config.Ctx.
func (c *Conn) Ctx() any { return c.cfg.Ctx }
