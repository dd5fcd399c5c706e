package engine

import (
	"github.com/rdsd/rdsd/internal/chores"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs/sim"
	"golang.org/x/sys/unix"
)

// atLimit is a world at one of the limits of docs/ipc.md. The longest turn, in processor
// time of this thread, is printed for docs/performance. No test judges it.
type atLimit struct {
	*world
	longest time.Duration
}

func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// do measures f, a part of a turn of host 0.
func (l *atLimit) do(f func()) {
	start := threadTime()
	f()
	l.longest = max(l.longest, threadTime()-start)
}

// turn measures n turns of host 0, and gives the other hosts theirs.
func (l *atLimit) turn(n int) {
	for range n {
		l.do(func() { l.es[0].Turn(l.net.Now(), Wall(l.net.Now())) })
		for _, e := range l.es[1:] {
			e.Turn(l.net.Now(), Wall(l.net.Now()))
		}
		if !l.net.Step() {
			l.net.At(l.net.Now()+ms, func() {})
		}
	}
}

// rest turns until nothing goes on in turns any more.
func (l *atLimit) rest() {
	l.t.Helper()
	l.turn(50)
	for n := 0; l.es[0].chores.Open() > 0; n++ {
		if l.turn(1); n == 100_000 {
			l.t.Fatal("never ends")
		}
	}
}

// taken turns until the engine has taken what the client submitted.
func (l *atLimit) taken(r *raw) {
	for !r.cl.sub.Empty() {
		l.es[0].Turn(l.net.Now(), Wall(l.net.Now()))
	}
}

const (
	allSlots = 131072
	allMsgs  = 65536
)

func largeParams() shm.Params {
	p := smallParams()
	p.SubEntries, p.EventEntries, p.MaxMsgs, p.Slots, p.Cells = 1<<12, 1<<12, allMsgs, allSlots, allSlots
	return p
}

// openAll opens n destinations of s, to where addr says.
func (l *atLimit) openAll(r *raw, s uint32, n int, addr func(i int) (slot shm.SubDest)) {
	for i := range n {
		d := addr(i)
		d.Kind, d.Sock, d.Slot, d.Cell, d.Gen = shm.KindOpenDest, s, uint32(i), uint32(i), 1
		r.put(func(e *shm.Entry) { *e.SubDest() = d })
		if i%4000 == 3999 {
			l.taken(r)
		}
	}
	l.taken(r)
}

func (l *atLimit) sendAll(r *raw, s uint32, n int, slot func(i int) uint32, size int) {
	for i := range n {
		r.sendMsg(s, slot(i), uint32(i), size)
		if i%4000 == 3999 {
			l.taken(r)
		}
	}
	l.taken(r)
}

// closeSock has the request answered as a session has: it asks once a turn.
func (l *atLimit) closeSock(r *raw, s uint32) {
	l.t.Helper()
	var p RingPlace
	for err := errAgain; err == errAgain; l.turn(1) {
		l.do(func() { _, err = l.es[0].Serve(r.cl, &ipc.CloseSock{Sock: s}, &p) })
		if err != nil && err != errAgain {
			l.t.Fatal(err)
		}
	}
}

// granted is a process with n regions, each granted to a socket of host 1.
func (l *atLimit) granted(n int) *opSide {
	a, b := l.opSide(0, 10), l.opSide(1, 20)
	a.exposeTo(a.register(abi.RightRead), 1, 20)
	l.run()
	for i := range n - 1 {
		if err := a.exposeTo(a.register(abi.RightRead), 1, 20); err != nil {
			l.t.Fatal(err)
		}
		if i%1024 == 0 {
			l.run()
		}
	}
	l.run()
	if got := b.e.peers.all[0].grants.Len(); got != n {
		l.t.Fatalf("%d grants have arrived of %d", got, n)
	}
	return a
}

// limitCases are the limits, and what happens at them.
var limitCases = []struct {
	name  string
	hosts int
	units int // of work that there is at least
	run   func(l *atLimit)
}{
	{"65534 sockets: their process exits", 1, 65534, func(l *atLimit) {
		r := l.attach(0, smallParams())
		for port := 2; port < 65536; port++ {
			r.bind(uint16(port))
		}
		l.begin()
		l.do(func() { r.at.Close() })
		l.rest()
	}},
	{"65536 regions granted to a peer: their process exits", 2, 65536, func(l *atLimit) {
		a := l.granted(defaultMaxGrants)
		l.begin()
		l.do(func() { a.at.Close() })
		l.rest()
	}},
	{"65536 regions granted to a peer: its daemon restarts", 2, 65536, func(l *atLimit) {
		l.granted(defaultMaxGrants)
		l.begin()
		l.do(func() { l.es[0].peers.voidGrants(l.es[0].peers.all[0].remote) })
		l.rest()
	}},
	{"65536 keys being taken back: the connection breaks", 2, 2 * 65536, func(l *atLimit) {
		a := l.granted(defaultMaxGrants)
		e := l.es[0]
		l.es = l.es[:1] // the peer answers no more
		a.at.Close()
		for e.clients.leaving.N > 0 {
			e.Turn(l.net.Now(), Wall(l.net.Now()))
		}
		l.begin()
		l.do(func() { e.peers.all[0].c.Reset(e.now, errAdmin); e.dirty.touch(e.peers.all[0]) })
		l.rest()
		e.chores.All += 65536 // these have ended before
	}},
	{"131072 destinations lead to a peer: it goes, comes, is congested and free", 2, 4 * allSlots, func(l *atLimit) {
		r := l.attach(0, largeParams())
		s := r.bind(10)
		l.openAll(r, s, allSlots, func(int) shm.SubDest { return shm.SubDest{Port: 20, Addr: hostAddr(1).As16()} })
		p := l.es[0].peers.all[0]
		r.sendMsg(s, 0, 0, 1)
		l.run()
		l.begin()
		l.do(func() { p.c.Reset(l.es[0].now, errAdmin); l.es[0].dirty.touch(p) })
		l.rest()
		r.sendMsg(s, 0, 1, 1)
		l.turn(100)
		l.rest()
		l.run()
		x := l.opSide(1, 20).cl.socks[0]
		for _, on := range []bool{true, false} {
			l.es[1].rx.setCongested(x, on)
			l.turn(100)
			l.rest()
		}
		if n := p.c.Stats().CongUpdateReceived; n < 2 {
			l.t.Errorf("%d congestion maps came", n)
		}
	}},
	{"131072 destinations of a socket: it is closed", 2, allSlots, func(l *atLimit) {
		r := l.attach(0, largeParams())
		s := r.bind(10)
		l.openAll(r, s, allSlots, func(int) shm.SubDest { return shm.SubDest{Port: 20, Addr: hostAddr(1).As16()} })
		l.begin()
		l.closeSock(r, s)
		l.rest()
	}},
	{"65536 senders of this host wait for a socket: it is read", 1, 60_000, func(l *atLimit) {
		r, to := l.attach(0, largeParams()), l.attach(0, smallParams())
		to.bind(20)
		s := r.bind(10)
		l.openAll(r, s, allMsgs, func(int) shm.SubDest { return shm.SubDest{Port: 20, Addr: hostAddr(0).As16()} })
		to.cl.socks[0].limit = 1
		l.sendAll(r, s, allMsgs, func(i int) uint32 { return uint32(i) }, 600)
		l.run()
		if n := to.cl.socks[0].waiters.N; n < 60_000 {
			l.t.Fatalf("%d wait", n)
		}
		l.begin()
		for range 200 { // each time there is room for one
			to.read()
			l.turn(5)
		}
		to.cl.socks[0].limit = 1 << 30
		l.do(func() { l.es[0].rx.relieve(to.cl.socks[0]) })
		l.rest()
	}},
	{"65536 messages to a destination: they are cancelled", 1, allMsgs, func(l *atLimit) {
		r := l.attach(0, largeParams())
		s := r.bind(10)
		r.open(s, 0, 0, nobody(1), 20)
		l.sendAll(r, s, allMsgs, func(int) uint32 { return 0 }, 10)
		l.begin()
		r.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: s, Slot: 0} })
		l.rest()
		if n := r.cl.socks[0].txs.N; n != 0 {
			l.t.Errorf("%d messages left", n)
		}
	}},
	{"65536 messages to a destination of this host that is closed", 1, 60_000, func(l *atLimit) {
		r, to := l.attach(0, largeParams()), l.attach(0, smallParams())
		to.bind(20)
		s := r.bind(10)
		r.open(s, 0, 0, hostAddr(0), 20)
		to.cl.socks[0].limit = 1
		l.sendAll(r, s, allMsgs, func(int) uint32 { return 0 }, 600)
		l.begin()
		r.put(func(e *shm.Entry) { *e.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: s, Slot: 0} })
		l.rest()
		if n := r.cl.socks[0].txs.N; n != 0 {
			l.t.Errorf("%d messages left", n)
		}
	}},
	{"65536 messages to a peer that closes its connection, and comes back as another", 2, 0, func(l *atLimit) {
		r := l.attach(0, largeParams())
		l.opSide(1, 20)
		s := r.bind(10)
		r.open(s, 0, 0, hostAddr(1), 20)
		r.sendMsg(s, 0, 0, 1)
		l.run()
		other := l.es
		l.es = l.es[:1]
		l.sendAll(r, s, allMsgs-1, func(int) uint32 { return 0 }, 10)
		l.begin()
		l.turn(200)
		other[1].Shutdown()
		l.es = other
		l.turn(200)
		l.es[1] = l.boot(1, 99, Config{})
		l.turn(3000)
	}},
	{"20000 sockets to a peer with READs that wait", 2, 0, func(l *atLimit) {
		const n = 20000
		r := l.attach(0, largeParams())
		a, b := opSideOf(r, 10), l.opSide(1, 20)
		g := b.expose(0, 64<<10, abi.RightRead, a)
		if err := b.exposeTo(g, 0, 0); err != nil {
			l.t.Fatal(err)
		}
		l.run()
		for i := range uint32(n) {
			s := r.bind(uint16(100 + i))
			r.open(s, i, i, hostAddr(1), 20)
			op := a.op(abi.OpRead, g.Cookie, 0)
			op.Len, op.OpID = 64<<10, 1
			r.put(func(d *shm.Entry) { *d.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: s, Slot: i, MsgID: i} })
			r.put(func(d *shm.Entry) { *d.SubOp() = op })
			if i%1000 == 999 {
				l.taken(r)
			}
		}
		if n := l.es[0].peers.all[0].flows.n; n < 10000 {
			l.t.Fatalf("only %d destinations wait for their turn", n)
		}
		l.begin()
		l.turn(1000)
	}},
	{"4096 peers, never met: their destinations are closed", 1, 4096, func(l *atLimit) {
		r := l.attach(0, largeParams())
		s := r.bind(10)
		l.openAll(r, s, 4096, func(i int) shm.SubDest { return shm.SubDest{Port: 20, Addr: nobody(i).As16()} })
		if n := len(l.es[0].peers.all); n != 4096 {
			l.t.Fatalf("%d peers", n)
		}
		l.begin()
		l.closeSock(r, s)
		l.rest()
	}},
}

// begin has the work counted and measured from here on, without the collector's.
func (l *atLimit) begin() {
	runtime.GC()
	debug.SetGCPercent(-1)
	e := l.es[0]
	e.chores.Renew()
	e.chores.Most, e.chores.All, l.longest = 0, 0, 0
}

// TestTurnsAtLimits: at each documented limit no turn looks at more than its budget, and
// all of the work goes through that budget.
func TestTurnsAtLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills every table")
	}
	const collect = 100
	defer debug.SetGCPercent(debug.SetGCPercent(collect))
	for _, c := range limitCases {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			l := &atLimit{world: newWorld(t, c.hosts, Config{})}
			c.run(l)
			debug.SetGCPercent(collect)
			if l.es[0].chores.Most > chores.Budget+choreSlack {
				t.Errorf("a turn looked at %d things, its budget is %d", l.es[0].chores.Most, chores.Budget)
			}
			if all := l.es[0].chores.All; all < c.units {
				t.Errorf("%d things looked at, there are %d", all, c.units)
			}
			t.Logf("the longest turn: %.2f ms", float64(l.longest.Nanoseconds())/1e6)
		})
	}
}

// TestOwnMemory: the engine's own memory is what it took by Config.Alloc, each byte once.
func TestOwnMemory(t *testing.T) {
	want := uint64(0)
	st, err := stats.NewBlock(make([]uint64, stats.Size/8+1), stats.Info{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(sim.NewNetwork(1).Device(hostAddr(0)), Config{OverflowBytes: 16 << 20, RecvBufs: 256, SendBufs: 64,
		Alloc: func(n int) []byte { want += uint64(n); return make([]byte, n) }}, st)
	if err != nil {
		t.Fatal(err)
	}
	if n := e.OwnMemory(); n != want {
		t.Errorf("%d bytes, want %d: %d too many", n, want, n-want)
	}
}
