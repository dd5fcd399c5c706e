package sim

import (
	"math/rand/v2"
	"net/netip"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

const wall0 = 1_700_000_000_000_000_000

// world is one run of the simulation.
type world struct {
	net  *sim.Network
	opt  options
	hist history

	sights map[string]int              // see saw
	onTurn func(*host)                 // lets a scenario look at a host's daemon
	within func(h *host, point string) // see host.at

	hosts []*host
	gone  []*host     // hosts that are gone for good
	eps   []*endpoint // open endpoints, in the order in which they were made
	ports map[netip.AddrPort]*portInfo

	flows   map[flowKey]*flow // looked up, never ranged over
	flowsV  []*flow
	short   map[pair][]*message // messages too short to carry an id that may be in progress
	msgs    []*message          // by id - 1
	ops     []*op               // by token - 1
	regions []*region

	rTurn, rApp, rWork, rSize, rOp, rFault, rHook, rBind, rHold, rPlay, rVersion, rMeet, rTCP, rAnybody, rPaths, rOlder *rand.Rand

	mem   *memPool  // nil: memory comes from the heap
	slab  []message // not yet used
	ticks int64     // of a clock that never stands still
	zeros uint32    // how many zero-copy cookies were used
	want  []byte    // see region.verify
	down  []connKey // ends of connections in lanes that nobody uses any more

	breaks   int
	sendErr  error // of the last send
	sent     int   // number of messages at the last action; idle counts actions without a new one
	idle     int
	acts     int
	nextEp   int
	events   int
	over     bool // no more faults and load
	scratch  []byte
	comps    []rds.Completion
	notices  []rds.Notice
	depth    int      // how many calls wait
	answered bool     // one of them was answered within a turn
	midTurn  int      // how many calls were answered within a turn
	met      meetings // of features
	notes    int      // notices that came
	amids    int      // calls of host.amid that counted
	kernel   *kworld  // a kernel peer of the first host; nil: there is none
}

// host is one machine: a device, an engine and its clients.
type host struct {
	w       *world
	n       int
	addr    netip.Addr
	dev     *sim.Device
	e       *engine.Engine
	pools   [][]byte   // of e
	making  bool       // e is being made: what it allocates are its pools
	rand    *rand.Rand // the engine's
	life    int
	older   bool // the daemon knows one path
	up      bool
	armed   bool
	timerAt int64
	clients []*client
	crashAt int64                 // time of the last crash, or of the last peer forgotten; 0 for never
	forgot  int                   // how many peers it forgot
	met     map[netip.Addr]int    // the lives of other hosts that this one knows
	ups     map[netip.Addr]uint64 // connections that came up, in this life

	rest    func() (struct{}, bool) // ends the turn that is held, see hold; nil: no turn is held
	pause   func()                  // holds the present turn where it is; nil: it may not be held
	free    bool                    // no process waits for the turn under way
	turns   int
	pausing pausing
	cancels bool // what a socket sent is being cancelled
	drained bool // as a whole: no socket can be bound
	behind  map[engine.MarkKey]lateMark
	tcp     *tcpHost // nil: no host of the world is reached by RDS/TCP
}

// build makes a world whose hosts are not started yet.
func build(seed uint64, opt *options) *world { return buildWith(seed, opt, nil) }

func buildWith(seed uint64, opt *options, mem *memPool) *world {
	w := &world{net: sim.NewNetwork(seed), ports: map[netip.AddrPort]*portInfo{}, flows: map[flowKey]*flow{}, short: map[pair][]*message{}, mem: mem}
	w.rTurn, w.rApp, w.rWork = w.net.Rand(streamTurn), w.net.Rand(streamApp), w.net.Rand(streamWork)
	w.rSize, w.rOp, w.rFault, w.rHook = w.net.Rand(streamSize), w.net.Rand(streamOp), w.net.Rand(streamFault), w.net.Rand(streamHook)
	w.rBind, w.rHold, w.rPlay, w.rVersion = w.net.Rand(streamBind), w.net.Rand(streamHold), w.net.Rand(streamPlay), w.net.Rand(streamVersion)
	w.rMeet, w.rTCP, w.rAnybody = w.net.Rand(streamMeet), w.net.Rand(streamTCP), w.net.Rand(streamAnybody)
	w.rPaths, w.rOlder = w.net.Rand(streamPaths), w.net.Rand(streamOlder)
	if opt != nil {
		w.opt = *opt
	} else {
		w.opt = drawOptions(w.net.Rand(streamOptions))
		w.opt.more(w.rMeet)
		w.opt.quotas(w.net.Rand(streamPress))
		w.opt.waysThere(w.rAnybody, w.rPaths, w.rOlder)
		w.opt.threads(w.net.Rand(streamThreads))
	}
	w.hist.hash = 0xcbf29ce484222325
	w.scratch, w.want, w.comps, w.notices = mem.get(abi.MaxMessage+8), mem.get(1<<20), make([]rds.Completion, 64), make([]rds.Notice, 64)
	w.net.Timing = w.opt.timing
	if opt == nil && !w.opt.masked {
		w.net.Attr.Caps &^= verbs.CapMaskedAtomic
	}
	if w.opt.kernel {
		w.net.Attr.Caps |= verbs.CapPlacedCQ
	}
	if w.opt.unatomic {
		w.net.Attr.Caps &^= verbs.CapMaskedAtomic | verbs.CapAtomics
	}
	w.net.At(1e9, func() {}) // for a timer, time 0 means none
	w.net.Step()
	return w
}

// boot starts all hosts.
func (w *world) boot() {
	for i := range w.opt.hosts {
		h := &host{w: w, n: i, addr: hostAddr(i)}
		w.hosts = append(w.hosts, h)
		h.boot()
	}
}

func (w *world) now() int64 { return w.net.Now() }

// below draws from [0, n).
func below(r *rand.Rand, n int64) int64 {
	if n <= 0 {
		return 0
	}
	return r.Int64N(n)
}

// boot starts a daemon on the host, with clients and sockets.
func (h *host) boot() {
	w := h.w
	h.life++
	h.pausing, h.drained = pausing{}, false
	h.up, h.timerAt, h.met, h.behind = true, 0, map[netip.Addr]int{}, map[engine.MarkKey]lateMark{}
	h.ups = map[netip.Addr]uint64{}
	h.dev = w.net.Device(h.addr)
	h.rand = w.net.Rand(uint64(streamEngine + 16*h.n + 256*h.life))
	h.older = w.drawsOlder()
	h.e = h.engine()
	w.log(h, "boot", int64(h.life), 0, 0)
	for range w.opt.clients {
		h.attach()
	}
	if h.life > 1 && w.opt.deaf > 0 {
		h.reopens()
	}
}

// engine makes an engine on the host's device.
func (h *host) engine() *engine.Engine {
	w, o, r := h.w, &h.w.opt, h.rand
	st, err := stats.NewBlock(make([]uint64, stats.Size/8+1), stats.Info{})
	must(err)
	h.pools, h.making = nil, true
	defer func() { h.making = false }()
	e, err := engine.New(turnDevice{h.dev, h}, engine.Config{
		Instance: r.Uint64() | 1, MaxSend: o.maxSend, SendBufs: o.sendBufs, RecvBufs: o.recvBufs, PeerCredits: o.credits, MaxPiece: o.piece, CopySlice: o.slice,
		MaxGrants: h.tableSize(), MaxPeers: o.maxPeers, HardCap: o.hardCap, OverflowBytes: o.overflow, RevokeTimeout: o.revokeTimeout, SettleTimeout: o.settleTimeout,
		Paths: h.wantsPaths(), Silence: o.silence, ForgetAfter: o.forgetAfter, Policy: o.policy(), Rates: engine.Rates{Messages: o.rate}, Alloc: h.alloc, Rand: r.Uint64,
		StartSeq:   func() uint64 { return uint64((wall0+w.now())/1_000_000) << 20 },
		KernelPeer: func(a netip.Addr) bool { return a == kwKernel },
		Trace:      h.trace,
	}, st)
	must(err)
	h.useTCP(e)
	must(e.AddLocal(h.addr))
	return e
}

// alloc is the memory of the engine, and of its processes.
func (h *host) alloc(n int) []byte {
	m := h.w.mem.get(n)
	if h.making {
		h.pools = append(h.pools, m)
	}
	return m
}

func must(err error) {
	if err != nil {
		broken("harness", "%v", err)
	}
}

// kick makes the engine turn soon.
func (h *host) kick() {
	if h.armed || !h.up {
		return
	}
	h.armed = true
	life := h.life
	h.w.net.At(h.w.now()+below(h.w.rTurn, 2000), func() {
		if h.life == life && h.up {
			h.armed = false
			h.free = true
			h.turn()
			h.free = false
		}
	})
}

// wholeTurn is one turn of the engine.
func (h *host) wholeTurn() {
	w := h.w
	if w.within != nil && h.turns%2 == 0 {
		h.e.Do(func() { h.at("posted") })
	}
	work := h.e.Turn(w.now(), engine.Wall(wall0+w.now()))
	for _, c := range h.clients {
		c.subs = 0
	}
	if !h.dev.Alive() {
		h.crashed()
		return
	}
	alive := 0
	for _, c := range h.clients {
		if !c.gone {
			alive++
		}
	}
	h.stands()
	h.checkMarks()
	h.checkTables()
	if w.onTurn != nil {
		w.onTurn(h)
	}
	if n := engine.Clients(h.e); n != alive && n != alive+1 { // one client may be attaching
		broken("session", "host %d has %d clients, the engine %d: it ended one", h.n, alive, n)
	}
	if work || h.e.Active() {
		h.kick()
	}
	if work {
		for _, c := range h.clients {
			c.wake()
		}
	}
	if t := h.e.NextTimer(); t != 0 && (h.timerAt == 0 || t < h.timerAt) {
		h.timerAt = t
		life := h.life
		w.net.At(t, func() {
			if h.life == life {
				if h.timerAt == t {
					h.timerAt = 0
				}
				h.kick()
			}
		})
	}
}

// step runs the next event of the network. It is false if there is none.
func (w *world) step() bool {
	w.endTurns()
	if !w.net.Step() {
		return false
	}
	if w.events++; w.events%looksAt == 0 {
		w.meet()
	}
	w.kernel.follows()
	if w.answered { // the process runs first
		w.answered = false
		return true
	}
	w.endTurns()
	for _, h := range w.hosts {
		if !h.up {
			continue
		}
		if !h.dev.Alive() {
			h.crashed()
		} else if !h.e.Halted() && (h.dev.Pending() || h.e.Active()) {
			h.kick()
		}
	}
	return true
}

// pump is step for a call that waits.
func (w *world) pump() {
	if !w.step() {
		broken("liveness", "a call waits and nothing is to come: %v", w.state())
	}
	w.bound()
}

const maxEvents = 3_000_000

func (w *world) bound() {
	if w.events > maxEvents {
		broken("liveness", "still busy after %d events, at %d µs: %v", w.events, w.now()/1000, w.state())
	}
}

// crash ends the daemon of a host; another one starts later.
func (h *host) crash() {
	if h.endTurn(); h.up {
		h.w.net.Crash(h.addr)
		h.crashed()
	}
}

// crashed cleans up after the device has died.
func (h *host) crashed() {
	w := h.w
	w.log(h, "crash", int64(h.life), 0, 0)
	h.up, h.armed = false, false
	h.crashAt = w.now()
	w.breaks++
	h.tcp.dies()
	for _, c := range h.clients {
		c.at.Kill()
		c.end()
	}
	h.clients = nil
	for _, r := range w.regions {
		r.forget(h.addr)
	}
	w.net.At(w.now()+1_000_000+below(w.rFault, pick[int64](w.rFault, 1e6, 50e6, 1e9)), h.boot)
}

// tick is the next time of a clock that never stands still.
func (w *world) tick() int64 {
	w.ticks++
	return w.ticks
}
