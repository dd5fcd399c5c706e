// Package engine is the data path of a host: every socket, connection, queue pair and
// memory region, driven by calls to Turn. It has no clock, file, log or network of its
// own: time comes with Turn, devices and memory come with Config, what happened goes to
// Config.Trace. So the simulator runs the very code that the daemon runs.
//
// Start at Engine.Turn; docs/architecture.md says where each thing is decided.
package engine

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
)

// Engine is the daemon's data path: every socket, connection, queue pair and
// memory region of the host. All of it belongs to the goroutine that calls
// Turn; other goroutines reach it only through Do.
type Engine struct {
	cfg   Config
	rails []*rail // one or two
	now   int64   // of the current turn, monotonic ns
	wall  int64   // the same moment, unix ns
	st    *stats.Block
	lists *lists // nil: none are kept

	turned turnedAway

	locals  map[netip.Addr]*local
	localsV []*local // in order of AddLocal
	remotes map[remoteKey]*remote
	peersV  []*peer  // lanes of all remotes
	tcp     *tcpSide // nil: no peer is reached by RDS/TCP
	nextKey verbs.PeerKey
	clock   uint64 // see tick
	sweep   sweep

	mem      *quota.Memory       // sessions take from it
	accounts map[uint32]*account // by uid

	clients  []*Client    // attached, alive
	active   list[Client] // whose rings are looked at every turn
	dirtyC   []*Client    // to publish at the end of the turn
	dirtyP   []*peer      // to flush
	spareP   []*peer      // the other half of the pair
	breaking []*peer      // to break off: they misbehaved inside a call of their connection
	draining []*peer      // their queue pairs are in error and drain
	spareD   []*peer      // the other half of the pair

	leaving     list[Client] // what they had is being ended
	deadRegions list[region] // nobody can use their keys: to be retired
	cancelling  list[slot]   // their messages are being withdrawn
	roused      list[socket] // they have room: who waits for it is to try again
	retiring    chore        // of deadRegions
	ending      chore        // of leaving
	withdrawing chore        // of cancelling
	rousing     chore        // of roused
	chores      list[chore]  // what goes on in turns, see chores.go
	choreLeft   int          // of this turn's choreBudget
	choreMost   int          // the most that a turn has used of it
	choreAll    int          // what all turns have used

	byKey       map[verbs.PeerKey]*peer
	homeless    audience           // destinations that wait for room for one more peer
	homeAt      int64              // when to look again, 0 = nobody waits
	droppedAt   int64              // when dropUnused looked last
	regions     map[uint32]*region // by rkey
	regionsV    list[region]       // in order of registration
	revoking    rounds[region]
	pressing    chore // of revoking, see tickRegions
	holdingPool pool[holding]
	revokeAt    int64      // when to look at them, 0 = there are none
	jobs        list[slot] // slots with local work to run

	// Of all sockets: submitted and not yet returned, not yet settled.
	sndMsgs, sndBytes, ops int

	ctls       pool[ctlMsg]
	msgs       pool[txMsg]
	txOps      pool[txOp]
	rxs        pool[rxMsg]
	overMem    []byte        // for messages that found no room at their client
	overFree   []*shm.Arena  // its windows that nobody has
	held       int           // bytes of it in use
	released   bool          // some came free in this turn
	short      list[account] // users with sockets that refused for want of it
	wanted     list[account] // with destinations that wait for places
	unfinished list[rxMsg]   // messages in assembly, by when they are looked at

	sendMem  []byte
	sendMR   verbs.MR
	sendFree []*conn.SendBuf
	ctlMem   []byte
	ctlFree  []*conn.SendBuf
	ctlLeft  int // bytes of ctlMem that were never lent
	ctlMR    verbs.MR
	pools    [][]byte // of cfg.Alloc
	scratch  conn.Scratch
	congNews bool // of a local
	starved  bool // somebody found the send pool empty
	recvLeft int  // buffers not yet promised to a peer

	wc [32]verbs.WC // few: a turn goes beyond cqBytes by what they bring
	cm [16]verbs.CMEvent

	deviceRest int64 // ns that a device without queue pairs is not asked; the loop's, 0 with virtual time
	deviceAt   int64 // until then

	throttle  throttle
	timers    timers
	limits    limits  // of messages that are given up
	ticking   []*peer // scratch of runTimers
	nextTimer int64   // when runTimers has something to do, 0 = never

	own       conn.Stats // connCounters: of all connections, and of what stayed on this host
	uncounted []*peer    // touched since their counters were added to own

	drain  bool                // see drain.go: of all
	drains map[netip.Addr]bool // of single addresses

	post    post
	hasRung atomic.Bool // a client without a doorbell has rung
}

// local is one address of this host.
type local struct {
	addr      netip.Addr
	addr16    [16]byte          // addr as messages to clients carry it
	key       verbs.PeerKey     // stands for this address in exports to this host
	listeners [2]verbs.Listener // by rail; nil: the address is not on it
	ports     portTable
	cong      cong.Map
	congNews  bool                 // the map changed, peers are to be told
	slots     map[uint16]*audience // of this host's sockets, by the port here they lead to
}

// AddLocal makes addr one of the host's addresses and listens there, on all
// devices. Before the first turn only: it may block.
func (e *Engine) AddLocal(addr netip.Addr) error { return e.AddLocalOn(addr, true, true) }

// AddLocalOn is AddLocal on the first device, the second, or both.
func (e *Engine) AddLocalOn(addr netip.Addr, first, second bool) error {
	addr = addr.Unmap()
	l := &local{addr: addr, addr16: addr.As16(), slots: map[uint16]*audience{}}
	for i, r := range e.rails {
		if on := [...]bool{first, second}; !on[i] {
			continue
		}
		if err := failpoint.Hit(failpoint.Listen); err != nil {
			l.close()
			return err
		}
		ln, err := r.dev.Listen(e.port(addr))
		if err != nil {
			l.close()
			return err
		}
		l.listeners[i] = ln
	}
	if e.tcp != nil {
		if err := e.tcp.net.Listen(addr); err != nil {
			l.close()
			return fmt.Errorf("RDS/TCP: %w", err)
		}
	}
	l.key = e.newKeys()
	e.locals[addr] = l
	e.localsV = append(e.localsV, l)
	return nil
}

func (l *local) close() {
	for _, ln := range l.listeners {
		if ln != nil {
			ln.Close()
		}
	}
}

// port is where the daemon of a host is at an address.
func (e *Engine) port(a netip.Addr) netip.AddrPort {
	if a.Is4() {
		return netip.AddrPortFrom(a, e.cfg.Port)
	}
	return netip.AddrPortFrom(a, e.cfg.Port6)
}

// New makes an engine on dev, which it owns from now on. st receives the
// counters. It allocates the pools through cfg.Alloc.
func New(dev verbs.Device, cfg Config, st *stats.Block) (*Engine, error) {
	cfg.setDefaults()
	e := &Engine{
		cfg: cfg, st: st,
		locals: map[netip.Addr]*local{}, remotes: map[remoteKey]*remote{},
		regions: map[uint32]*region{}, byKey: map[verbs.PeerKey]*peer{},
		recvLeft: cfg.RecvBufs,
		accounts: map[uint32]*account{}, mem: quota.NewMemory(cfg.MaxSharedBytes, cfg.MaxRegisteredBytes),
	}
	e.retiring.step, e.ending.step, e.pressing.step = e.retireDead, e.endClients, e.press
	e.withdrawing.step, e.rousing.step = e.withdraw, e.wakeRoused
	if _, err := e.openRail(dev, cfg.RecvBufs, cfg.CQE, cfg.ArmCQ); err != nil {
		return nil, err
	}
	if err := e.initPools(); err != nil {
		return nil, err
	}
	e.SetRates(cfg.Rates)
	return e, nil
}

// Memory is what clients have of the daemon's. Safe for any goroutine.
func (e *Engine) Memory() *quota.Memory { return e.mem }

// KeepLists has the engine keep out's rows. Before the first turn.
func (e *Engine) KeepLists(out *stats.Lists) { e.lists = newLists(out) }

// Pools is the memory that the engine has of Config.Alloc. Once it has ended it does
// not touch it any more.
func (e *Engine) Pools() [][]byte { return e.pools }

// OwnMemory is how much the engine's own buffers may come to, bytes.
func (e *Engine) OwnMemory() uint64 {
	n := uint64(e.cfg.OverflowBytes)
	for _, b := range e.pools {
		n += uint64(len(b))
	}
	return n
}

// Turn does one round of everything there is to do and reports whether there
// was any. now is monotonic, wall unix time, both in nanoseconds.
func (e *Engine) Turn(now, wall int64) bool {
	e.now, e.wall = now, wall
	e.renew()
	work := e.post.run()
	work = e.runChores() || work
	work = e.pollClients() || work
	work = e.flushPeers() || work
	// What clients sent to each other, and what they are given back, does not
	// wait for the network.
	e.publish()
	if !e.deviceRests(now) {
		for _, r := range e.rails {
			work = r.dev.Progress() || work
			work = e.pollCM(r) || work
			work = e.pollCQ(r) || work
		}
		e.polled()
	}
	work = e.pollTCP() || work
	work = e.runLocalJobs() || work
	work = e.placesGiven() || work
	if e.nextTimer != 0 && now >= e.nextTimer {
		e.runTimers()
		work = true
	}
	// Delivered before acked: an ack must not leave this process before what it
	// covers is in the client's ring, or the message is lost if we die between.
	e.memoryFreed()
	e.publish()
	// What completions and timers queued leaves in this turn, not the next:
	// a ping-pong pays for each extra round.
	if len(e.dirtyP) > 0 || e.congNews {
		e.flushPeers()
		for _, r := range e.rails {
			r.dev.Flush()
		}
		e.publish()
	}
	return work
}

// deviceRests reports whether the device may be left alone in this turn, for a
// system call less: it has no queue pair, and so nothing that hurries.
func (e *Engine) deviceRests(now int64) bool {
	if now < e.deviceAt {
		idle := true
		for _, r := range e.rails {
			idle = idle && len(r.byQPN) == 0
		}
		if idle {
			return true
		}
	}
	e.deviceAt = now + e.deviceRest
	return false
}

// Active reports whether a turn could find work without being woken: local
// copies under way or connections that wait for nothing but the next turn.
func (e *Engine) Active() bool {
	return e.jobs.n > 0 || e.wanted.n > 0 || len(e.dirtyP) > 0 || len(e.draining) > 0 || e.chores.n > 0 || e.post.has.Load() || e.hasRung.Load() || e.released && e.short.n > 0 || e.tcpBusy()
}

// pollCQ handles a device's completions. When the queue is empty, connections
// that drain may learn that nothing of them is left in it.
func (e *Engine) pollCQ(r *rail) bool {
	total := 0
	for left := cqBytes; total < cqBudget && left > 0; {
		n := r.cq.Poll(e.wc[:])
		for i := 0; i < n; i++ {
			if isRecv(&e.wc[i]) {
				left -= int(e.wc[i].ByteLen)
			}
			e.complete(r, &e.wc[i])
		}
		total += n
		if len(r.repost) > 0 {
			r.postRecvs()
		}
		if n < len(e.wc) {
			if len(e.draining) > 0 {
				e.drained(r)
			}
			break
		}
	}
	return total > 0
}

// polled does what waited for the end of completions.
func (e *Engine) polled() {
	for i, p := range e.breaking {
		e.breaking[i] = nil
		p.breaking = false
		p.c.Reset(e.now, errCtl)
		e.touch(p)
	}
	e.breaking = e.breaking[:0]
	if e.starved && len(e.sendFree) > 0 {
		e.starved = false
		for _, p := range e.peersV {
			e.touch(p)
		}
	}
}

// MayBlock says whether the loop may wait for the devices' descriptors: a
// completion that comes from now on makes one readable. If that had to be asked
// for, the queue is to be looked at once more first.
func (e *Engine) MayBlock() bool {
	may := true
	for _, r := range e.rails {
		if !r.arm || r.armed && !r.cq.Notified() {
			continue
		}
		err := r.cq.ReqNotify(false)
		r.armed = err == nil
		may = may && err != nil
	}
	return may
}

// drained tells the connections whose queue pairs drain that their completion
// queue was empty. What joins the list meanwhile is for the next time.
func (e *Engine) drained(r *rail) {
	list := e.draining
	e.draining = e.spareD[:0]
	for _, p := range list {
		if p.rail != r {
			e.draining = append(e.draining, p)
			continue
		}
		p.draining = false
		p.rc.CQEmpty(e.now)
		e.touch(p)
	}
	e.spareD = list
}

// complete routes one completion. Those of a queue pair that is gone only give
// their receive buffer back.
func (e *Engine) complete(r *rail, wc *verbs.WC) {
	p := r.lastQP
	if p == nil || r.lastQPN != wc.QPNum {
		p = r.byQPN[wc.QPNum]
		r.lastQP, r.lastQPN = p, wc.QPNum
	}
	if isRecv(wc) {
		if p != nil {
			buf := r.recvMem[int(wc.WRID&^recvWRID)*e.cfg.MaxSend:][:e.cfg.MaxSend]
			if wc.Status == verbs.WCSuccess {
				p.rc.HandleRecv(e.now, wc, buf[:min(int(wc.ByteLen), len(buf))])
			} else {
				p.rc.HandleRecv(e.now, wc, nil)
			}
			e.took(p, int(wc.ByteLen))
			e.touch(p)
		}
		r.repost = append(r.repost, r.recvWR(int(wc.WRID&^recvWRID)))
		return
	}
	if p != nil {
		p.rc.HandleSend(e.now, wc)
		e.touch(p)
	}
}

// recvWRID marks receives: on an error completion the opcode is not valid.
// Package conn leaves this bit to its host.
const recvWRID = conn.HostWRID

func isRecv(wc *verbs.WC) bool { return wc.WRID&recvWRID != 0 }

// touch notes that p may have something to send, has broken, or has a new
// timer. It follows every call into p's connection.
func (e *Engine) touch(p *peer) {
	if !p.dirty && (p.c.NeedFlush() || p.flows.n > 0 && p.mayFeed()) {
		p.dirty = true
		e.dirtyP = append(e.dirtyP, p)
	}
	e.watch(p)
}

func (e *Engine) watch(p *peer) {
	if !p.uncounted {
		p.uncounted = true
		e.uncounted = append(e.uncounted, p)
	}
	if p.rc != nil && !p.draining && p.rc.State() == conn.Error {
		p.draining = true
		e.draining = append(e.draining, p)
	}
	t := p.c.NextTimeout()
	e.timers.arm(p, t)
	e.armTimer(t)
}

// flushPeers lets every connection with something to send post it.
func (e *Engine) flushPeers() bool {
	e.tellCong()
	if len(e.dirtyP) == 0 {
		return false
	}
	list := e.dirtyP
	e.dirtyP, e.spareP = e.spareP[:0], list
	for _, p := range list {
		if p.dirty = false; p.gone {
			continue
		}
		e.feed(p)
		p.c.Flush(e.now)
		for e.feed(p) {
			p.c.Flush(e.now)
		}
		// What it could not post waits for an event: credits, completions, a
		// send buffer. Each of them touches p again. A stream stops for others.
		if p.tcp != nil {
			e.touch(p)
		} else {
			e.watch(p)
		}
	}
	return true
}

// Shutdown ends every connection in order: what is not sent stays unsent.
func (e *Engine) Shutdown() {
	for len(e.clients) > 0 {
		e.Detach(e.clients[0])
	}
	e.endAtOnce()
	for _, p := range e.peersV {
		p.c.Close(e.now)
		e.touch(p)
	}
	for _, l := range e.localsV {
		l.close()
	}
}

// Quiet reports that every connection is down: no work request is left.
func (e *Engine) Quiet() bool {
	for _, p := range e.peersV {
		if p.c.State() != conn.Down {
			return false
		}
	}
	return true
}
