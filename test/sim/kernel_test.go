package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// kworld is a daemon with one process and a kernel peer. Its rules are those for kernel peers in
// docs/guarantees.md. Every datagram arrives once and in order, over any number of breaks. An
// operation with status SUCCESS has its data in place, and its message arrives. Where the
// outcome cannot be known the status is UNKNOWN.
type kworld struct {
	seed uint64
	net  *sim.Network
	r    *rand.Rand
	e    *engine.Engine // nil: host has the daemon
	host *host          // of a world in which all else goes on, see kernelBeside
	proc *client        // and its process
	c    *rds.Client
	k    *kpeer
	bad  bool // issue operations with bad keys

	resting, done bool // in a world: only what is there is read; nothing is

	saw map[string]int

	socks  []*rds.Socket
	limits []int    // of the send buffers of socks
	out    []*kwmsg // messages of our sockets, by id
	in     []*kwmsg // messages of the kernel, by id
	last   map[[4]uint16]int
	port   uint16   // of the first of our sockets
	ports  []uint16 // of the kernel's
	mem    []byte   // the kernel's region
	cookie uint64
	buf    *rds.Buffer
	local  int // bytes used of buf
	free   []*kwregion
	scr    []byte
}

// kwmsg is a message of either side.
type kwmsg struct {
	flow     [4]uint16 // direction, source port, destination port
	idx      int
	size     int
	got      int
	op       bool
	write    bool
	silent   bool
	badKey   bool
	off      int // offset in the target
	loc      int // offset in buf
	n        int
	status   rds.Status
	settled  bool
	kop      *kop
	ended    bool // the kernel's message was acked or dropped
	acked    bool
	region   *kwregion
	carrying *kwregion
}

// kwregion is a region of ours that the kernel has learnt of.
type kwregion struct {
	r    *rds.Region
	off  int
	once bool
	used bool
}

const (
	kwRegion = 4096
	kwOpen   = rds.Status(255)
)

func (w *kworld) fatalf(format string, args ...any) {
	panic(&violation{rule: "kernel", text: fmt.Sprintf("seed %d: ", w.seed) + fmt.Sprintf(format, args...)})
}

var (
	kwOurs   = netip.MustParseAddr("127.0.1.1")
	kwKernel = netip.MustParseAddr("127.0.1.200")
)

type kwBell struct{ w *kworld }

func (b kwBell) Wait(int64)   { b.w.step() }
func (b kwBell) Ring()        {}
func (b kwBell) Close() error { return nil }

func newKworld(seed uint64, overflow int) *kworld {
	w := &kworld{seed: seed, port: 100, net: sim.NewNetwork(seed), saw: map[string]int{}, last: map[[4]uint16]int{}}
	w.net.Attr.Caps |= verbs.CapPlacedCQ
	w.r = w.net.Rand(1)
	w.net.At(1e9, func() {})
	w.net.Step()
	dev := w.net.Device(kwOurs)
	r := w.net.Rand(2)
	st, err := stats.NewBlock(make([]uint64, stats.Size/8+1), stats.Info{})
	must(err)
	w.e, err = engine.New(dev, engine.Config{
		KernelPeer: func(a netip.Addr) bool { return a == kwKernel },
		Instance:   7, SendBufs: 64, RecvBufs: 128, PeerCredits: 32, HardCap: 4 << 10, OverflowBytes: overflow, MaxSend: pick(w.r, 8240, 32<<10),
		Alloc: func(n int) []byte { return make([]byte, n) }, Rand: r.Uint64,
		StartSeq: func() uint64 { return uint64((wall0+w.net.Now())/1_000_000) << 20 },
		Trace: func(_ engine.Place, what string, err error) {
			w.saw[what]++
			if err != nil && what != "down" && what != "connect failed" {
				w.saw[what+": "+err.Error()]++
			}
		},
	}, st)
	must(err)
	must(w.e.AddLocal(kwOurs))
	w.begin(w.attach(0))
	return w
}

// begin has a kernel peer and the process c of the daemon know each other.
func (w *kworld) begin(c *rds.Client) {
	var err error
	w.c = c
	w.k = newKpeer(w.net, kwKernel, kwOurs, w.net.Rand(3))
	w.k.fail = w.fatalf
	w.k.up = func() { w.saw["kernel up"]++ }
	w.mem = make([]byte, 1<<20)
	_, w.cookie = w.k.register(w.mem)
	w.buf, err = w.c.Alloc(4 << 20)
	must(err)
	for i := range uint16(2) {
		s, err := w.c.Bind(netip.AddrPortFrom(kwOurs, w.port+i))
		must(err)
		must(s.SetRcvBuf(pick(w.r, 3000, 100_000)))
		limit := pick(w.r, 20_000, 1<<20)
		must(s.SetSndBuf(limit))
		w.socks, w.limits = append(w.socks, s), append(w.limits, limit)
		port := 200 + i
		w.ports = append(w.ports, port)
		w.k.socks[port] = &ksock{port: port, limit: pick(w.r, 3000, 100_000), got: w.kernelGot}
	}
	w.scr = make([]byte, 1<<20)
}

// attach opens a client for a user.
func (w *kworld) attach(uid uint32) *rds.Client {
	at := engine.NewInProcess(w.e, func(f func()) {
		w.e.Do(f)
		w.turn()
	}, func() {})
	at.Pump = w.step
	at.Cred = ipc.Cred{UID: uid}
	c, err := rds.Open(attach.Through(context.Background(), attach.Way{Control: at, Wake: kwBell{w}}), rds.Options{Spin: -1, Params: rds.Params{
		SubEntries: 512, EventEntries: 64, MaxMsgs: 512, MaxRx: 64, Slots: 64, Cells: 32, SendWindows: 1, RecvWindows: 1}})
	must(err)
	return c
}

func (w *kworld) turn() bool { return w.e.Turn(w.net.Now(), engine.Wall(wall0+w.net.Now())) }

// step lets the daemon and the kernel turn once, and the network move.
func (w *kworld) step() {
	busy := w.turn()
	busy = w.k.step(w.net.Now()) || busy
	if !busy || w.r.IntN(4) == 0 {
		if !w.net.Step() {
			w.net.At(w.net.Now()+100_000, func() {})
		}
	}
}

func (w *kworld) to(port uint16) netip.AddrPort { return netip.AddrPortFrom(kwKernel, port) }

func (w *kworld) run(msgs int) {
	for i := 0; len(w.out)+len(w.in) < msgs; i++ {
		if i > 400*msgs {
			w.fatalf("only %d messages after %d steps", len(w.out)+len(w.in), i)
		}
		w.act()
		w.step()
	}
	w.net.Faults = sim.Faults{}
	w.bad = false
	for i := 0; !w.quiet(); i++ {
		w.readAll()
		w.step()
		if i > 1_000_000 {
			w.fatalf("never comes to rest: kernel %d, %d queued, %d unacked; %+v", w.k.state, len(w.k.sendq), len(w.k.retrans), w.conns())
		}
	}
	w.verify()
}

// readAll has all sockets of both sides read what there is.
func (w *kworld) readAll() {
	for _, s := range w.socks {
		w.receive(s)
	}
	for _, p := range w.ports {
		for w.k.recvmsg(w.k.socks[p]) {
		}
	}
}

// wait makes a call that waits.
func (w *kworld) wait(call func()) {
	if w.host == nil {
		call()
		return
	}
	w.proc.blocking(call)
}

// conns are the daemon's connections to the kernel.
func (w *kworld) conns() []conn.Info {
	e := w.e
	if w.host != nil {
		e = w.host.e
	}
	return slices.DeleteFunc(engine.Conns(e), func(i conn.Info) bool { return i.Remote != kwKernel })
}

// act does one thing that an application of one side does.
func (w *kworld) act() {
	switch k := w.r.IntN(40); {
	case k < 8:
		w.send()
	case k < 14:
		w.kernelSend(w.ports[w.r.IntN(2)], w.port+uint16(w.r.IntN(2)), nil)
	case k < 18:
		w.receive(w.socks[w.r.IntN(2)])
	case k < 26:
		w.k.recvmsg(w.k.socks[w.ports[w.r.IntN(2)]])
	case k == 26 && w.r.IntN(8) == 0: // ping
		_, _ = w.socks[0].Send(rds.DontWait, &rds.Message{Addr: w.to(0)})
	case k == 27 && w.r.IntN(8) == 0:
		w.k.sendmsg(w.ports[0], 0, nil, 0, nil, 0, nil)
	case k == 28 && w.bad && w.r.IntN(20) == 0:
		w.k.drop()
	}
}

// quiet reports whether all that was sent has arrived or has its status.
func (w *kworld) quiet() bool {
	if len(w.k.sendq)+len(w.k.retrans) > 0 {
		for _, m := range append(w.k.retrans, w.k.sendq...) {
			if m.h.DPort > 1 && m.h.Seq < w.k.nextTx-16 { // a kernel leaves its last few messages unacked
				return false
			}
		}
	}
	for _, m := range w.in {
		if m.got == 0 && !(m.op && m.kop.status == kDropped) {
			return false
		}
	}
	for _, m := range w.out {
		if m.op && !m.settled || m.got == 0 && !m.silent && !(m.op && m.status != rds.Success) {
			return false
		}
	}
	for _, i := range w.conns() {
		if i.Queued+i.Unacked > 0 {
			return false
		}
	}
	return true
}

func (w *kworld) verify() {
	for i, m := range w.in {
		if m.op && m.kop.status == 0 && m.got != 1 {
			w.fatalf("the kernel's operation %d succeeded, its message arrived %d times", i, m.got)
		}
		if m.acked && m.got != 1 {
			w.fatalf("the kernel's message %d was acked and arrived %d times", i, m.got)
		}
	}
	for _, s := range w.socks {
		ops := uint64(0)
		for _, m := range w.out {
			if m.op && m.flow[1] == s.LocalAddrPort().Port() {
				ops++
			}
		}
		if hwm := s.HWM(kwKernel); hwm != ops {
			w.fatalf("mark %d after %d operations", hwm, ops)
		}
		must(s.Close())
	}
	if w.host == nil {
		must(w.c.Close())
	}
	w.saw["duplicates at the kernel"] += w.k.dups
	w.saw["bounces"] += w.k.bounces
	w.saw["rejected by the kernel"] += w.k.rejected
	for _, i := range w.conns() {
		w.saw["duplicates"] += int(i.Stats.RecvDropOldSeq)
		w.saw["raced"] += int(i.Stats.ConnectRaced)
		if !i.Kernel || i.Stats.ProtocolErrors > 0 {
			w.fatalf("kernel %v, %d protocol errors: %v", i.Kernel, i.Stats.ProtocolErrors, i.LastError)
		}
	}
}
