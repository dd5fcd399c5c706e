package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

// Each purpose has a random stream of its own, so that a new draw for one does not shift the
// others. New ones go to the end.
const (
	streamOptions = iota + 1
	streamTurn
	streamApp
	streamWork
	streamSize
	streamOp
	streamFault
	streamHook
	streamEngine // + 16*host + 256*life
	streamBind
	streamHold
	streamScenario
	streamPlay
	streamVersion
	streamMeet
	streamPress
	streamKernel
	streamTCP
	streamAnybody
	streamPaths
	streamOlder
	streamThreads
)

// options are drawn before a run begins: which faults there are and how often, how small
// everything is, and the load.
type options struct {
	hosts, clients, sockets int // hosts; clients per host; sockets per client

	faults   sim.Faults
	hookRate uint32 // how often a host crashes at a point of the provider, per million passages
	timing   sim.Timing

	// How many of the workload's actions disturb, per thousand.
	reset, crash, kill, rebind, stall, cancel, hole, halt int
	deaf, drain                                           int    // a process reads nothing; an administrator drains
	barrier                                               int    // how many of the other actions wait in Barrier, per thousand
	succeed                                               bool   // a daemon that stood still is replaced
	rate                                                  uint64 // messages per second that a peer may send; 0: no limit
	successor                                             bool   // another process binds a port again

	maxSend, sendBufs, recvBufs, credits int
	hardCap, overflow                    int
	revokeTimeout, settleTimeout         int64
	silence, forgetAfter                 int64
	sndBuf, rcvBuf                       int
	params                               rds.Params

	opShare, localShare, badShare int // percent
	offers                        int // percent of the actions, in addition to the usual ones
	big                           int // per thousand: payloads up to 1 MiB
	small                         int // percent: more payloads are short
	burst                         int // most datagrams in a burst
	gap                           int64

	lanes    int // how many lanes are used; 0: only lane 0
	laneV    [3]uint8
	atomics  int  // percent of the regions are for atomic operations
	pairs    int  // percent of the messages with an operation carry two
	waits    int  // percent of the atomic operations are calls that wait
	giveUp   int  // percent of the messages have a limit
	zero     int  // percent of the messages bring a cookie back; half of these stay in registered memory
	linger   int  // percent of the closes wait for acknowledgements
	peerless bool // some sockets get no notices of peers that come and go
	monitor  bool // some sockets monitor congestion
	masked   bool // devices can do masked atomics ...
	unatomic bool // ... or no atomics at all

	held int // percent of the control requests after whose answer the turn is held
	amid int // percent of the turns in whose middle a process sends and reads

	anybody              int  // percent of the sockets send to whoever is bound
	press                bool // what begins at a host finds its users at their quota
	users                int  // how many uids the processes of a host have, 0: all are root
	quotaOps, quotaBytes int  // 0: none
	quotaGrants          int  // 0: none

	piece int // bytes of an operation that go to a peer at a time, 0: the default
	slice int // bytes of an operation within a host that are copied at a time, 0: the default

	paths bool // daemons want several paths, each another number in each of its lives
	older bool // with paths: some daemons know one, in some of their lives

	kernel bool // the first host has a kernel peer

	tcp      int    // one more than the number of the host that is reached by RDS/TCP; 0: none is
	tcpBreak uint32 // how often a packet breaks a connection of it, per million
	tcpBlind bool   // source ports do not say the lanes

	maxGrants, maxPeers int // limits of a daemon on what a peer can make it remember; 0: its default
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func drawOptions(r *rand.Rand) options {
	o := options{
		hosts: 2 + r.IntN(3), clients: 1 + r.IntN(2), sockets: 1 + r.IntN(3),
		timing:  sim.DefaultTiming(),
		maxSend: pick(r, 8240, 16<<10, 32<<10), sendBufs: pick(r, 16, 32, 128), recvBufs: pick(r, 64, 128, 512),
		credits: pick(r, 4, 8, 64), hardCap: pick(r, 4<<10, 64<<10, 1<<20, 4<<20),
		overflow:      pick(r, 4<<10, 16<<10, 256<<10, 8<<20),
		revokeTimeout: pick[int64](r, 20e6, 5e9, 5e9), settleTimeout: pick[int64](r, 100e6, 30e9, 30e9),
		sndBuf: pick(r, 2000, 20000, 106496, 1<<20), rcvBuf: pick(r, 1, 3000, 30000, 106496),
		params: rds.Params{
			SubEntries: pick[uint32](r, 16, 64, 512), EventEntries: pick[uint32](r, 8, 64, 512),
			MaxMsgs: pick[uint32](r, 16, 128, 1024), MaxRx: pick[uint32](r, 8, 128, 1024),
			Slots: pick[uint32](r, 12, 64, 256), Cells: 32, SendWindows: 1, RecvWindows: 1,
		},
		opShare: pick(r, 12, 20, 50), localShare: pick(r, 0, 10, 40), badShare: pick(r, 0, 5, 20),
		big: pick(r, 0, 1, 4), gap: pick[int64](r, 2_000, 20_000, 60_000),
	}
	rate := func(share int, v ...uint32) uint32 {
		if r.IntN(100) >= share {
			return 0
		}
		return pick(r, v...)
	}
	all := rate(70, 20, 100, 1000)
	for i := range o.faults.Break {
		if r.IntN(3) > 0 {
			o.faults.Break[i] = all
		}
	}
	o.faults.HalfOpen = rate(40, 100_000, 500_000)
	o.faults.PostFail = rate(30, 50, 500)
	o.faults.Refuse = rate(30, 50_000, 300_000)
	o.faults.Unreachable = rate(20, 50_000, 200_000)
	o.faults.Lost = rate(20, 20_000, 100_000)
	o.hookRate = rate(25, 5, 50)
	o.timing.Late.Max = pick[int64](r, 30e6, 1e9)
	o.reset = int(rate(60, 3, 15))
	o.crash = int(rate(40, 2, 6))
	o.kill = int(rate(40, 2, 8))
	o.rebind = int(rate(50, 3, 15))
	o.stall = int(rate(60, 5, 30))
	o.cancel = int(rate(30, 3, 10))
	o.small, o.burst = pick(r, 0, 20, 24), pick(r, 10, 60, 100)
	if r.IntN(2) == 0 {
		o.lanes, o.laneV = 1+r.IntN(3), [3]uint8{0, uint8(1 + r.IntN(100)), uint8(101 + r.IntN(155))}
	}
	o.atomics, o.pairs, o.waits = pick(r, 0, 25, 60), pick(r, 0, 10, 50), pick(r, 0, 3)
	o.giveUp, o.zero, o.linger = pick(r, 0, 0, 2, 20), pick(r, 0, 2, 20), pick(r, 0, 30)
	o.peerless, o.monitor = r.IntN(3) == 0, r.IntN(2) == 0
	o.masked, o.unatomic = r.IntN(5) > 0, r.IntN(10) == 0
	if r.IntN(3) == 0 {
		o.users = 1 + r.IntN(2)
		o.quotaOps, o.quotaBytes = pick(r, 0, 2, 20), pick(r, 0, 1<<20, 4<<20)
	}
	o.silence = pick[int64](r, 50e6, 1e9, 30e9, 30e9)
	o.hole = int(rate(30, 1, 3))
	o.forgetAfter = pick[int64](r, 0, 0, 5e6, 100e6)
	o.held = pick(r, 0, 30, 100)
	if o.reset+o.crash+o.kill+o.rebind == 0 {
		o.reset = 10
	}
	o.piece = pick(r, 0, 0, 0, 64, 500, 5000)
	return o
}

// more draws what TestSim has besides, so that everything meets. Scenarios draw their own.
func (o *options) more(r *rand.Rand) {
	if r.IntN(2) == 0 {
		o.halt, o.succeed = pick(r, 2, 8), r.IntN(4) > 0
	}
	if r.IntN(2) == 0 {
		o.deaf = pick(r, 3, 10)
		o.params.EventEntries = pick[uint32](r, 8, 16, 64)
	}
	if r.IntN(3) == 0 {
		o.drain = pick(r, 1, 4)
	}
	if r.IntN(2) == 0 {
		o.barrier = pick(r, 5, 20)
	}
	if r.IntN(2) == 0 {
		o.slice, o.localShare = pick(r, 300, 2000), max(o.localShare, 20) // copies last
	}
	if r.IntN(10) == 0 {
		o.hosts, o.clients, o.sockets = 2, 1, 20+r.IntN(6)
		o.params.Slots, o.params.Cells = max(o.params.Slots, 64), 128
	}
}

// sendsToAnybody draws in which runs some sockets send to whoever is bound.
func (o *options) sendsToAnybody(r *rand.Rand) { o.anybody = pick(r, 0, 30, 100) }

// waysThere draws that, and in which runs there are several connections between two hosts in each lane, and in which of those also
// daemons that know one.
func (o *options) waysThere(r, paths, older *rand.Rand) {
	o.sendsToAnybody(r)
	o.paths = paths.IntN(4) == 0
	o.older = o.paths && older.IntN(2) == 0
}

// threads draws in which runs threads of devices still touch memory whose region has ended.
func (o *options) threads(r *rand.Rand) {
	o.timing.LetGo.Max = pick[int64](r, 0, 100_000, 3e6)
}

// quotas draws in which runs users are at their quota when something else begins.
func (o *options) quotas(r *rand.Rand) {
	if o.press = r.IntN(3) == 0; !o.press {
		return
	}
	o.users, o.quotaOps = 1+r.IntN(2), pick(r, 2, 4, 20)
	if o.cancel == 0 {
		o.cancel = 3
	}
}

func (o *options) String() string { return fmt.Sprintf("%+v", *o) }
