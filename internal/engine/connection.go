package engine

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// profile is what a peer can do in the protocol that its connection speaks.
type profile struct {
	grants       bool // keys are granted and taken back by messages; else a key is good until its registration ends
	incarnations bool // its sockets have one, and it answers who took a message
	runs         bool // else each datagram is a message
	takesBack    bool // what is refused here; else it is lost with the next one
	learns       bool // it can be told that its sequences are forgotten
	rdma         bool // operations, grants and cookies have a way there
	queues       bool // its connection has queues of its own, and takes whatever it is given
}

// The profiles of rdsd, of Linux kernels, and of what is reached by RDS/TCP, which speaks as kernels do.
var (
	ofRdsd   = profile{grants: true, incarnations: true, runs: true, takesBack: true, learns: true, rdma: true}
	ofKernel = profile{rdma: true}
	ofTCP    = profile{queues: true}
)

// facts are the questions that can be asked about a peer's connection, whatever carries it.
// Asking changes nothing.
type facts interface {
	State() conn.State
	Ready() bool
	profile() *profile
	Instance() uint64
	Info() conn.Info
	Stats() *conn.Stats
	RemoteCong() *cong.Map
	Missing(token any) int
	Waiting(f func(*msg.Msg)) // f may call connection.Send
	NeedFlush() bool
	NextTimeout() int64
	Queued() int
	OpsUnderWay() uint64
	OpsOpen() bool
	Stopped(port uint16) bool
	Asks() bool
	Released() uint64
	LetsGo() bool
	Past() (conn.Past, bool)
	IdleSince() (since int64, idle bool)
	Path() verbs.Path // nothing, if it does not go by TCP or the transport does not tell

	// met reports whether there was a connection once.
	met() bool
	// retryAt returns when the next attempt to connect is due while it is down, 0: none is.
	retryAt() int64
	// supports reports whether the device and the peer can carry out o.
	supports(o *rdmaop.Op) bool
	// metered reports whether what it receives is counted below it.
	metered() bool
	// limitable says what of the peer's the limits apply to.
	limitable() string
	// emptying reports whether it has broken and its work requests have not all ended.
	emptying() bool
	// attached reports whether it has something of a device's.
	attached() bool
	// retries reports whether a failed attempt is followed by one by another device.
	retries() bool
	// starved reports whether it has no credits.
	starved() bool
	// figures sets what the transport knows of the fields that a row has, too, without
	// allocating. describe sets the others.
	figures(i *ctl.PeerInfo)
	describe(i *Peer)
}

// upkeep changes only what is counted and promised, and leaves the connection nothing to do.
type upkeep interface {
	TakeArrived() conn.Arrived
	HoldOps()
	// meter has what it receives counted below it, if bytes are limited.
	meter()
	// forget gives back what it was promised. The peer is forgotten.
	forget()
	// handOver has it go over in a planned restart.
	handOver(*crossing)
}

// carrier is what carries a connection: queue pairs (byQP) or RDS/TCP (byTCP).
type carrier interface {
	facts
	upkeep

	Send(*msg.Msg)
	Cancel(*msg.Msg, msg.Outcome) (later bool)
	CancelMatching(match func(*msg.Msg) bool, o msg.Outcome)
	GiveUp(*msg.Msg) (o msg.Outcome, later bool)
	Withdraw(*msg.Msg) bool
	ForgetPartial(token any)
	QueueCong(*cong.Map)
	Flush(now int64)
	Tick(now int64)
	Reset(now int64, why error)
	CutOff(now int64, why error) // Reset for a peer that is not allowed any more: nothing is waited for
	Close(now int64)
	// GiveBack takes back what was handed to it, see peer.leave.
	GiveBack(now int64, instance uint64)
	SetSilence(now, ns int64) // has no meaning by RDS/TCP, which has a limit of its own
	Probe() bool
	Halt(now int64)
	Resume(now int64)

	// hold stops what it receives, or lets it go on.
	hold(on bool, now int64)
}

// connection is a peer's connection as the rest of the engine has it. Each call after
// which it may have something to send, be broken, or have a new timer is a method here,
// and touches the peer. Only flushPeers calls the carrier
// itself, and so do the device and the net for what they bring (byqp.go, bytcp.go).
type connection struct {
	facts
	upkeep
	to carrier
	e  *Engine
	p  *peer
}

// carriedBy gives p its connection.
func (e *Engine) carriedBy(p *peer, c carrier) { p.c = connection{c, c, c, e, p} }

func (c *connection) touch() { c.e.dirty.touch(c.p) }

func (c *connection) Send(m *msg.Msg)             { c.to.Send(m); c.touch() }
func (c *connection) Withdraw(m *msg.Msg) bool    { defer c.touch(); return c.to.Withdraw(m) }
func (c *connection) ForgetPartial(token any)     { c.to.ForgetPartial(token); c.touch() }
func (c *connection) QueueCong(m *cong.Map)       { c.to.QueueCong(m); c.touch() }
func (c *connection) Tick(now int64)              { c.to.Tick(now); c.touch() }
func (c *connection) Reset(now int64, why error)  { c.to.Reset(now, why); c.touch() }
func (c *connection) CutOff(now int64, why error) { c.to.CutOff(now, why); c.touch() }
func (c *connection) Close(now int64)             { c.to.Close(now); c.touch() }
func (c *connection) SetSilence(now, ns int64)    { c.to.SetSilence(now, ns); c.touch() }
func (c *connection) Probe() bool                 { defer c.touch(); return c.to.Probe() }
func (c *connection) Halt(now int64)              { c.to.Halt(now); c.touch() }
func (c *connection) Resume(now int64)            { c.to.Resume(now); c.touch() }
func (c *connection) hold(on bool, now int64)     { c.to.hold(on, now); c.touch() }

func (c *connection) Cancel(m *msg.Msg, o msg.Outcome) (later bool) {
	defer c.touch()
	return c.to.Cancel(m, o)
}

func (c *connection) CancelMatching(match func(*msg.Msg) bool, o msg.Outcome) {
	defer c.touch()
	c.to.CancelMatching(match, o)
}

func (c *connection) GiveUp(m *msg.Msg) (o msg.Outcome, later bool) {
	defer c.touch()
	return c.to.GiveUp(m)
}
