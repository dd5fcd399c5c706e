package engine

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// rig is engines on loopback, turned by the test's own goroutine, with one
// client each.
type rig struct {
	t     testing.TB
	start time.Time
	hosts []*rigHost
}

// rigHost is one engine and a client that writes its rings itself.
type rigHost struct {
	e    *Engine
	addr netip.Addr
	p    *InProcess

	seg  *shm.Segment
	sub  *shm.Producer
	ev   *shm.Consumer
	sret *shm.IDConsumer
	rret *shm.IDProducer
	send *shm.Arena
	sock uint32
	port uint16

	nextID, opID   uint32
	got, back      int // messages received, ids returned
	quiet          int // of those received, for quietPort+1
	statuses, good int
	entry          shm.Entry
}

func newRig(t testing.TB, n int) *rig { return newRigOf(t, n, newSoftEngine) }

// newSoftEngine is an engine on TCP alone.
func newSoftEngine(t testing.TB, _ int, addr netip.Addr, cfg Config, block *stats.Block) *Engine {
	e, err := New(softDevice(t), cfg, block)
	if err == nil {
		err = e.AddLocal(addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func softDevice(t testing.TB) *soft.Device {
	dev, err := soft.New(soft.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// newRigOf is a rig of the caller's engines.
func newRigOf(t testing.TB, n int, engine func(t testing.TB, i int, addr netip.Addr, cfg Config, block *stats.Block) *Engine) *rig {
	t.Helper()
	r := &rig{t: t, start: time.Now()}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(ln.Addr().(*net.TCPAddr).Port)
	ln.Close()
	for i := range n {
		h := &rigHost{addr: netip.AddrFrom4([4]byte{127, 0, 7, byte(i + 1)}), port: 4000}
		block, err := stats.NewBlock(make([]uint64, stats.Size/8), stats.Info{Instance: rng.Uint64() | 1})
		if err != nil {
			t.Fatal(err)
		}
		h.e = engine(t, i, h.addr, Config{Instance: rng.Uint64() | 1, Port: port, Rand: rng.Uint64,
			Rates:    Rates{Control: 1e9, Messages: 1e9, Bytes: 1 << 40}, // looked at, never reached
			CRC:      func(netip.Addr) verbs.CRCMode { return verbs.CRCOff },
			Alloc:    func(n int) []byte { return make([]byte, n) },
			StartSeq: func() uint64 { return uint64(time.Now().UnixMilli()) << 20 }}, block)
		h.e.KeepTime(r.now)
		h.attach(t)
		r.hosts = append(r.hosts, h)
	}
	return r
}

// attach makes the client of h, with one socket.
func (h *rigHost) attach(t testing.TB) {
	t.Helper()
	h.p = NewInProcess(h.e, func(f func()) { f() }, func() {})
	params := shm.DefaultParams()
	resp, fds, err := h.p.Call(&ipc.Hello{Version: ipc.Version, Role: ipc.RoleClient, Name: "test", Params: params}, nil)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := h.p.Map(fds[0], shm.SegmentSize(resp.(*ipc.HelloOK).Params), true)
	if err != nil {
		t.Fatal(err)
	}
	seg, err := shm.OpenSegment(mem)
	if err != nil {
		t.Fatal(err)
	}
	h.seg = seg
	h.sub, h.ev, h.sret, h.rret = seg.SubProducer(), seg.EventConsumer(), seg.SendRetConsumer(), seg.RecvRetProducer()
	h.send = shm.NewArena()
	w, err := h.p.Map(fds[4], shm.WindowSize, true)
	if err != nil {
		t.Fatal(err)
	}
	h.send.AddWindow(w)
	resp, _, err = h.p.Call(&ipc.Bind{Addr: h.addr, Port: h.port}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.sock = resp.(*ipc.BindOK).Sock
}

// open opens slot 0 for the socket of to.
func (h *rigHost) open(to *rigHost) {
	*h.sub.Reserve().SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: h.sock, Port: to.port, Addr: to.addr.As16(), Gen: 1}
	h.publish()
}

// publish makes visible what was put, and rings if the engine sleeps.
func (h *rigHost) publish() {
	h.sub.Publish()
	h.rret.Publish()
	if shm.WakeNeeded(h.seg.DaemonAsleep()) {
		h.p.RingDaemon()
	}
}

// put submits a message in chunk, reserved for good, with an operation if op
// is not nil.
func (h *rigHost) put(chunk, n uint32, ops ...*shm.SubOp) {
	h.submit(shm.Sub{Chunk: chunk, Len: n}, ops...)
}

// putRun submits n datagrams of size bytes as a run in chunk, which is free. s is 0 or
// RunAckNow.
func (h *rigHost) putRun(chunk uint32, n, size int, s shm.RunState) {
	mem := h.send.Bytes(chunk, shm.RunHead+n*frames.Size(size))
	for range n {
		binary.LittleEndian.PutUint32(mem[shm.RunHead+s.Len():], uint32(size))
		s = s.Append(size)
	}
	shm.RunWord(mem).Open(s)
	*h.sub.Reserve().Sub() = shm.Sub{Kind: shm.KindRun, Sock: h.sock, MsgID: h.nextID, Chunk: chunk, Len: uint32(len(mem))}
	h.nextID = (h.nextID + 1) % shm.DefaultParams().MaxMsgs
}

// submit is put of a descriptor with more in it.
func (h *rigHost) submit(d shm.Sub, ops ...*shm.SubOp) {
	d.Flags |= shm.SubAckNow
	h.submitAs(d, ops...)
}

// submitAs is submit that asks for an ack only if d does.
func (h *rigHost) submitAs(d shm.Sub, ops ...*shm.SubOp) {
	sub := h.sub.Reserve().Sub()
	d.Kind, d.Sock, d.MsgID = shm.KindSend, h.sock, h.nextID
	h.nextID = (h.nextID + 1) % shm.DefaultParams().MaxMsgs
	if len(ops) > 0 {
		d.Kind = shm.KindSendOp
	}
	if len(ops) > 1 {
		d.Flags |= shm.SubTwoOps
	}
	*sub = d
	for _, op := range ops {
		h.opID++
		op.OpID = uint64(h.opID)
		*h.sub.Reserve().SubOp() = *op
	}
}

// collect takes what the engine published: messages go back at once.
func (h *rigHost) collect() {
	for h.ev.Next(&h.entry) {
		switch shm.EvKind(h.entry.Kind()) {
		case shm.EvData:
			h.got++
			if h.entry.Event().DstPort == quietPort+1 {
				h.quiet++
			}
			h.rret.Put(h.entry.Event().RxID)
		case shm.EvStatus:
			h.statuses++
			if h.entry.Status().Status == abi.StatusSuccess {
				h.good++
			}
		}
	}
	h.ev.Release()
	h.publish()
	for {
		if _, ok := h.sret.Take(); !ok {
			break
		}
		h.back++
	}
	h.sret.Release()
}

// until turns all engines until cond holds.
func (r *rig) until(what string, cond func() bool) {
	limit := r.now() + int64(20*time.Second)
	for !cond() {
		now := r.now()
		for _, h := range r.hosts {
			h.e.Turn(now, Wall(r.start.UnixNano()+now))
			h.collect()
		}
		if now > limit {
			r.t.Fatalf("%s: not reached in 20 s", what)
		}
	}
}

func (r *rig) now() int64 { return int64(time.Since(r.start)) + 1 }

// allocs runs batch, which must leave nothing under way, and reports
// allocations per message.
func (r *rig) allocs(msgs int, batch func()) {
	r.t.Helper()
	for range 50 { // pools and queues reach their size
		batch()
	}
	if n := testing.AllocsPerRun(100, batch); n != 0 && !raceEnabled { // the detector allocates, too
		r.t.Errorf("%v allocations for %d messages, want 0", n, msgs)
	}
}

const allocBatch = 128

func TestTurnAllocs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hosts int
		size  int
		limit uint32
		run   int // datagrams of a run, 0: none
	}{
		{"empty", 2, 0, 0, 0}, {"small", 2, 64, 0, 0}, {"copied", 2, 4096, 0, 0}, {"in place", 2, 16 << 10, 0, 0},
		{"fragments", 2, 60 << 10, 0, 0}, {"with a limit", 2, 64, 60_000, 0}, {"same host", 1, 64, 0, 0},
		{"runs of one", 2, 64, 0, 1}, {"runs", 2, 64, 0, 100}, {"runs in fragments", 2, 1000, 0, 60}, {"runs, same host", 1, 64, 0, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.hosts)
			a, b := r.hosts[0], r.hosts[len(r.hosts)-1]
			a.open(b)
			n := tc.size
			if tc.run > 0 {
				n = shm.RunHead + tc.run*frames.Size(tc.size)
			}
			// What is in flight stays below the receive buffer: all of it is
			// delivered without stops.
			flight := min(allocBatch, max(1, shm.DefaultBuf/2/max(n, 1)))
			chunks := make([]uint32, flight)
			for i := range chunks {
				chunks[i], _ = a.send.Alloc(n)
			}
			r.allocs(allocBatch, func() {
				for left := allocBatch; left > 0; {
					k := min(flight, left)
					left -= k
					got, back := b.got+k, a.back+k
					for _, chunk := range chunks[:k] {
						if tc.run > 0 {
							a.putRun(chunk, tc.run, tc.size, shm.RunAckNow)
						} else {
							a.submit(shm.Sub{Chunk: chunk, Len: uint32(n), GiveUp: tc.limit})
						}
					}
					a.publish()
					r.until("delivery", func() bool { return b.got >= got && a.back >= back })
				}
			})
		})
	}
}

// The message path of operations: post, place, status, barrier.
func TestTurnAllocsRDMA(t *testing.T) {
	for _, hosts := range []int{2, 1} { // 1: on the same host
		r := newRig(t, hosts)
		a, b := r.hosts[0], r.hosts[len(r.hosts)-1]
		const n = 8 << 10
		resp, _, err := b.p.Call(&ipc.Alloc{Size: n}, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, _, err = b.p.Call(&ipc.Register{Sock: b.sock, Buffer: resp.(*ipc.AllocOK).Buffer, Len: n,
			Access: abi.RightWrite | abi.RightRead | abi.RightAtomic}, nil)
		if err != nil {
			t.Fatal(err)
		}
		reg := resp.(*ipc.RegisterOK)
		if _, _, err := b.p.Call(&ipc.Expose{Region: reg.Region, Addr: a.addr}, nil); err != nil {
			t.Fatal(err)
		}
		resp, _, err = a.p.Call(&ipc.Alloc{Size: n}, nil)
		if err != nil {
			t.Fatal(err)
		}
		local := resp.(*ipc.AllocOK).Buffer
		a.open(b)
		// The grant goes ahead of this message to a.
		if b != a {
			b.open(a)
		}
		b.put(0, 0)
		b.publish()
		r.until("grant", func() bool { return a.got == 1 })
		operands, _ := a.send.Alloc(shm.AtomicEntrySize)
		shm.PutAtomicEntry(a.send.Bytes(operands, shm.AtomicEntrySize), shm.AtomicEntry{CompareAdd: 1, CompareMask: 1 << 31})
		op := func(kind abi.OpKind, n uint64) *shm.SubOp {
			return &shm.SubOp{Op: kind, Flags: abi.FlagNotify, NSeg: 1, Region: local, Len: n, Cookie: reg.Cookie, SegChunk: operands}
		}
		for _, ops := range [][]*shm.SubOp{
			{op(abi.OpWrite, n)}, {op(abi.OpRead, n)}, {op(abi.OpFetchAdd, 8)}, {op(abi.OpCmpSwap, 8)},
			{op(abi.OpWrite, n), op(abi.OpFetchAdd, 8)},
		} {
			got := b.got
			r.allocs(allocBatch, func() {
				want, back := a.statuses+allocBatch*len(ops), a.back+allocBatch
				got += allocBatch
				for range allocBatch {
					a.submit(shm.Sub{Flags: shm.SubFromBuf, Buf: local, Len: 64}, ops...)
				}
				a.publish()
				r.until("statuses", func() bool { return a.statuses >= want && a.back >= back && b.got >= got })
			})
		}
		if a.good != a.statuses {
			t.Errorf("%d hosts: %d of %d operations succeeded", hosts, a.good, a.statuses)
		}
	}
}
