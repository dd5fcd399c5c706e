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
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
)

// Engine is the daemon's data path: every socket, connection, queue pair and
// memory region of the host. All of it belongs to the goroutine that calls
// Turn; other goroutines reach it only through Do.
type Engine struct {
	cfg Config
	st  *stats.Block
	moment
	clock uint64 // see tick

	post post

	addrs   addresses
	peers   peerTable
	users   userTable
	clients clientTable
	keys    keyTable

	devices devices
	tcp     *tcpSide // nil: no peer is reached by RDS/TCP
	turned  turnedAway

	dirty dirtyPeers
	due   deadlines

	jobs       lists.List[slot]  // slots with same-host work to run
	rousing    work[socket]      // they have room: who waits for it is to try again
	cancelling work[slot]        // their messages are being withdrawn
	broken     work[txMsg]       // of their operations a piece has failed
	unfinished lists.List[rxMsg] // messages in assembly, by when they are looked at
	chores     chores

	memory   [][]byte // of Config.Alloc
	pools    pools
	sendBufs sendBufs
	ctlBufs  ctlBufs
	overflow overflow
	scratch  conn.Scratch
	aim      aim
	queued   queued

	halt     halting
	pings    lists.List[Ping]
	throttle throttle
	drains   drains
	homeless homeless
	congNews bool // of a localAddr

	counts counts
	acked  acked
	lists  *statLists // nil: none are kept
	traces tracing
}

// queued counts what all sockets have submitted: messages that were not returned yet, their
// bytes, and operations that have not settled.
type queued struct{ msgs, bytes, ops int }

// pools are the records that are reused.
type pools struct {
	ctls lists.Pool[ctlMsg]
	msgs lists.Pool[txMsg]
	ops  lists.Pool[txOp]
	rxs  lists.Pool[rxMsg]

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
		users:   userTable{accounts: map[uint32]*account{}, mem: quota.NewMemory(cfg.MaxMaps, cfg.MaxSharedBytes, cfg.MaxRegisteredBytes)},
		keys:    keyTable{by: map[uint32]*region{}},
		devices: devices{recvLeft: cfg.RecvBufs},
	}
	e.traces.moment = &e.moment
	e.keys.retiring.step, e.keys.pressing.step = e.retireDead, e.press
	e.clients.leaving.step, e.cancelling.step, e.rousing.step = e.endClients, e.withdraw, e.wakeRoused
	e.broken.step = e.stopBroken
	if _, err := e.openRail(dev, cfg.RecvBufs, cfg.CQE, cfg.ArmCQ); err != nil {
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
func (e *Engine) KeepLists(out *stats.Lists) { e.lists = newStatLists(out) }

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
	now = e.setClock(now, wall)
	e.chores.renew()
	work := !e.Halts() && e.post.run()
	work = e.chores.run() || work
	work = !e.Halts() && e.pollClients() || work
	work = e.flushPeers() || work
	// What clients sent to each other, and what they are given back, does not
	// wait for the network.
	e.publish()
	if !e.deviceRests(now) {
		for _, r := range e.devices.rails {
			work = r.dev.Progress() || work
			work = e.pollCM(r) || work
			work = e.pollCQ(r) || work
		}
		e.polled()
	}
	work = e.pollTCP() || work
	work = (!e.Halts() || mutant.On(mutant.HaltCopies)) && e.runSameHostJobs() || work
	work = e.placesGiven() || work
	if e.due.next != 0 && now >= e.due.next {
		e.runTimers()
		work = true
	}
	// Delivered before acked: an ack must not leave this process before what it
	// covers is in the client's ring, or the message is lost if we die between.
	e.memoryFreed()
	e.publish()
	// What completions and timers queued leaves in this turn, not the next:
	// a ping-pong pays for each extra round.
	if len(e.dirty.flush) > 0 || e.congNews {
		e.flushPeers()
		for _, r := range e.devices.rails {
			r.dev.Flush()
		}
		e.publish()
	}
	return e.haltOn() || work
}

// Active reports whether a turn could find work without being woken: same-host
// operations in progress or connections that wait for nothing but the next turn.
func (e *Engine) Active() bool {
	if e.Halts() {
		return !e.Halted() && e.finishing()
	}
	return e.finishing() || e.jobs.N > 0 ||
		e.users.wanted.N > 0 || e.overflow.released && e.overflow.short.N > 0 ||
		e.post.has.Load() || e.clients.rung.Load()
}

// finishing reports whether something goes on in the next turn, whatever comes.
func (e *Engine) finishing() bool {
	return e.chores.N > 0 || len(e.dirty.flush) > 0 || len(e.dirty.emptying) > 0 || e.tcpBusy()
}

// Shutdown ends every connection in order: what is not sent stays unsent.
func (e *Engine) Shutdown() {
	for len(e.clients.all) > 0 {
		e.Detach(e.clients.all[0])
	}
	e.endAtOnce()
	for _, p := range e.peers.all {
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
