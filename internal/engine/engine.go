// Package engine is the data path of a host: every socket, connection, queue pair and
// memory region, driven by calls to Turn. It has no clock, file, log or network of its own:
// time comes with Turn, devices and memory come with Config, and events go to Config.Trace.
// So the simulator runs the same code as the daemon.
//
// Start at Engine.Turn; docs/architecture.md says where each thing is decided.
package engine

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/chores"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/post"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
)

// Engine is the daemon's data path: every socket, connection, queue pair and
// memory region of the host. Only the engine's thread may use it: the goroutine that
// calls Turn. Others reach it through Do. Most of it is in parts, which are
// types of their own: docs/architecture.md has a table of them.
type Engine struct {
	cfg Config
	st  *stats.Block
	moment
	clock uint64 // see tick

	post post.Box

	addrs   addresses
	peers   peerTable
	users   userTable
	clients clientTable
	keys    keyTable

	devices devices
	tcp     *tcpSide // nil: no peer is reached by RDS/TCP

	dirty dirtyPeers
	due   deadlines

	dests  destinations
	tx     sender
	rx     receiver
	loop   loop
	chores chores.Chores

	memory   [][]byte // of Config.Alloc
	pools    pools
	sendBufs sendBufs
	ctlBufs  ctlBufs
	scratch  conn.Scratch
	aim      aim

	halt     halting
	pings    lists.List[Ping]
	throttle throttle
	drains   drains

	watch  watching
	traces tracing
}

// pools are the records that are reused.
type pools struct {
	ctls lists.Pool[ctlMsg]
	msgs lists.Pool[txMsg]
	ops  lists.Pool[txOp]
	rxs  lists.Pool[rxMsg]

	takers lists.Pool[taker]

	longs  lists.Pool[long]
	pieces lists.Pool[piece]
}

// New makes an engine on dev, which it owns from now on. st receives the
// counters. It allocates the pools through cfg.Alloc.
func New(dev verbs.Device, cfg Config, st *stats.Block) (*Engine, error) {
	cfg.setDefaults()
	e := &Engine{
		cfg: cfg, st: st,
		addrs:   addresses{by: map[netip.Addr]*localAddr{}},
		peers:   peerTable{hosts: map[remoteKey]*remote{}, byKey: map[verbs.PeerKey]*peer{}},
		users:   userTable{accounts: map[config.Account]*account{}, mem: quota.NewMemory(cfg.MaxMaps, cfg.MaxSharedBytes, cfg.MaxRegisteredBytes)},
		keys:    keyTable{by: map[uint32]*region{}},
		devices: devices{recvLeft: cfg.RecvBufs},
	}
	e.traces.moment = &e.moment
	e.keys.e, e.peers.e, e.clients.e, e.users.e, e.devices.e, e.addrs.e = e, e, e, e, e, e
	e.dests.e, e.dests.nowhere.e, e.tx.e, e.rx.e, e.loop.e = e, e, e, e, e
	e.throttle.e, e.halt.e, e.dirty.e, e.drains.e, e.watch.e = e, e, e, e, e
	e.keys.retiring.One, e.keys.pressing.One = e.keys.retireNext, e.keys.pressNext
	e.loop.jobs.pool = &e.pools.takers
	e.clients.leaving.One, e.tx.cancelling.One, e.loop.rousing.One = e.clients.endNext, e.tx.withdrawNext, e.loop.wakeNext
	e.tx.broken.One = e.tx.stopNext
	if _, err := e.devices.openRail(dev, cfg.RecvBufs, cfg.CQE, cfg.ArmCQ); err != nil {
		return nil, err
	}
	if err := e.openBufs(); err != nil {
		return nil, err
	}
	e.SetRates(cfg.Rates)
	return e, nil
}

// Memory is what clients have of the daemon's. Safe for any goroutine.
func (e *Engine) Memory() *quota.Memory { return e.users.mem }

// KeepLists has the engine keep out's rows. Before the first turn.
func (e *Engine) KeepLists(out *stats.Lists) { e.watch.lists = newStatLists(out) }

// Pools is the memory that the engine has of Config.Alloc. Once it has ended it does
// not touch it any more.
func (e *Engine) Pools() [][]byte { return e.memory }

// OwnMemory is how much the engine's own buffers may come to, bytes: those of Pools.
func (e *Engine) OwnMemory() (n uint64) {
	for _, b := range e.memory {
		n += uint64(len(b))
	}
	return n
}

// Turn does one round of everything there is to do and reports whether there
// was any. now is monotonic, in ns. While the engine is Halted it does nothing.
func (e *Engine) Turn(now int64, wall Wall) bool {
	if e.Halted() {
		return false
	}
	now = e.halt.setClock(now, wall)
	e.chores.Renew()
	work := !e.Halts() && e.post.Run()
	work = e.chores.Run() || work
	work = !e.Halts() && e.clients.pollClients() || work
	work = e.dirty.flushPeers() || work
	// What clients sent to each other, and what they are given back, does not
	// wait for the network.
	e.publish()
	if !e.devices.deviceRests(now) {
		for _, r := range e.devices.rails {
			work = r.dev.Progress() || work
			work = e.peers.pollCM(r) || work
			work = e.devices.pollCQ(r) || work
		}
		e.dirty.polled()
	}
	work = e.pollTCP() || work
	work = !e.Halts() && e.loop.run() || work
	work = e.dests.placesGiven() || work
	if e.due.next != 0 && now >= e.due.next {
		e.runTimers()
		work = true
	}
	// Delivered before acked: an ack must not leave this process before what it
	// covers is in the client's ring, or the message is lost if we die between.
	e.rx.memoryFreed()
	e.publish()
	// What completions and timers queued leaves in this turn, not the next:
	// a ping-pong pays for each extra round.
	if len(e.dirty.flush) > 0 || e.rx.congNews {
		e.dirty.flushPeers()
		for _, r := range e.devices.rails {
			r.dev.Flush()
		}
		e.publish()
	}
	return e.halt.haltOn() || work
}

// Active reports whether a turn could find work without being woken: same-host
// operations in progress or connections that wait for nothing but the next turn.
func (e *Engine) Active() bool {
	if e.Halts() {
		return !e.Halted() && e.finishing()
	}
	return e.finishing() || e.loop.jobs.n > 0 ||
		e.users.wanted.N > 0 || e.rx.overflow.released && e.rx.overflow.short.N > 0 ||
		e.post.Has() || e.clients.rung.Load()
}

// finishing reports whether something goes on in the next turn, whatever comes.
func (e *Engine) finishing() bool {
	return e.chores.Open() > 0 || len(e.dirty.flush) > 0 || len(e.dirty.emptying) > 0 || e.tcpBusy()
}

// Ends says that the daemon is about to shut down. It is called ahead of the end of the sessions: a
// message that has arrived, and that its process was not told of, is then lost.
func (e *Engine) Ends() { e.rx.ends = true }

// Shutdown ends every connection in order: what is not sent stays unsent, and what has been delivered
// is acked. If a message is lost, see Ends, nothing is acked, because an ack would cover that message, too.
func (e *Engine) Shutdown() {
	e.Ends()
	for len(e.clients.all) > 0 {
		e.Detach(e.clients.all[0])
	}
	e.clients.endAtOnce()
	for _, p := range e.peers.all {
		if e.rx.lost && p.c.State() == conn.Up {
			p.c.Reset(e.now, conn.ErrClosed)
		}
		p.c.Close(e.now)
	}
	for _, l := range e.addrs.all {
		l.close()
	}
}

// Quiet reports that every connection is down: no work request is left.
func (e *Engine) Quiet() bool {
	for _, p := range e.peers.all {
		if p.c.State() != conn.Down {
			return false
		}
	}
	return true
}
