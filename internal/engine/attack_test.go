package engine

import (
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// world is engines on a simulated network and clients that write what they like
// into their shared memory.
type world struct {
	t   *testing.T
	net *sim.Network
	es  []*Engine
	tcp func(*Engine, int) // gives an engine RDS/TCP; nil: none has it

	seeds map[int]*uint64 // by host
}

func newWorld(t *testing.T, hosts int, cfg Config) *world {
	w := &world{t: t, net: sim.NewNetwork(1)}
	w.net.At(1, func() {})
	w.net.Step()
	for i := range hosts {
		w.es = append(w.es, w.boot(i, uint64(i)+1, cfg))
	}
	return w
}

// boot starts an engine on host i.
func (w *world) boot(i int, instance uint64, c Config) *Engine {
	return w.bootOn(w.net.Device(hostAddr(i)), i, instance, c)
}

func (w *world) bootOn(dev verbs.Device, i int, instance uint64, c Config) *Engine {
	w.t.Helper()
	addr := hostAddr(i)
	if w.seeds == nil {
		w.seeds = map[int]*uint64{}
	}
	if w.seeds[i] == nil {
		w.seeds[i] = new(uint64(i))
	}
	seed := w.seeds[i] // what a host has drawn is not drawn again by its next engine
	c.Instance = instance
	c.Alloc = func(n int) []byte { return make([]byte, n) }
	c.Rand = func() uint64 { *seed = *seed*6364136223846793005 + 1442695040888963407; return *seed >> 16 }
	c.StartSeq = func() uint64 { return 1 }
	if c.RecvBufs == 0 {
		c.RecvBufs, c.SendBufs = 256, 64
	}
	st, err := stats.NewBlock(make([]uint64, stats.Size/8+1), stats.Info{})
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := New(dev, c, st)
	if err == nil && w.tcp != nil {
		w.tcp(e, i)
	}
	if err == nil {
		err = e.AddLocal(addr)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// turnAll has each engine do one turn.
func (w *world) turnAll() {
	for _, e := range w.es {
		e.Turn(w.net.Now(), Wall(w.net.Now()))
	}
}

func hostAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}) }

// run turns the engines and the network until nothing moves for a while, or
// for 100 ms.
func (w *world) run() {
	w.t.Helper()
	end := w.net.Now() + 100_000_000
	for idle, n := 0, 0; idle < 20 && w.net.Now() < end; n++ {
		idle++
		for _, e := range w.es {
			if e.Turn(w.net.Now(), Wall(w.net.Now())) {
				idle = 0
			}
			counted(w.t, e)
		}
		if !w.net.Step() {
			w.net.At(w.net.Now()+1_000_000, func() {})
		}
		if n == 200_000 {
			w.t.Fatal("never comes to rest")
		}
	}
}

// raw is a client attachment without package rds.
type raw struct {
	w    *world
	e    *Engine
	at   *InProcess
	seg  *shm.Segment
	cl   *Client
	send []byte // first send window
}

func (w *world) attach(host int, p shm.Params) *raw {
	w.t.Helper()
	r, err := w.attachAs(host, p, ipc.Cred{})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// attachAs is attach of a process of another user.
func (w *world) attachAs(host int, p shm.Params, id ipc.Cred) (*raw, error) {
	w.t.Helper()
	e := w.es[host]
	r := &raw{w: w, e: e, at: NewInProcess(e, func(f func()) { f() }, func() {})}
	r.at.Cred = id
	resp, fds, err := r.at.Call(&ipc.Hello{Role: ipc.RoleClient, Params: p}, nil)
	if err != nil {
		return nil, err
	}
	p = resp.(*ipc.HelloOK).Params
	mem, err := r.at.Map(fds[0], shm.SegmentSize(p), true)
	if err == nil {
		r.seg, err = shm.OpenSegment(mem)
	}
	if err == nil {
		r.send, err = r.at.Map(fds[4], shm.WindowSize, true)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	r.cl = r.at.cl
	return r, nil
}

func smallParams() shm.Params {
	return shm.Params{SubEntries: 256, EventEntries: 16, MaxMsgs: 256, MaxRx: 16, Slots: 64, Cells: 64, SendWindows: 1, RecvWindows: 1}
}

func (r *raw) call(req ipc.Request) (ipc.Response, error) {
	resp, _, err := r.at.Call(req, nil)
	return resp, err
}

func (r *raw) must(req ipc.Request) ipc.Response {
	r.w.t.Helper()
	resp, err := r.call(req)
	if err != nil {
		r.w.t.Fatalf("%T: %v", req, err)
	}
	return resp
}

func (r *raw) bind(port uint16) uint32 {
	r.w.t.Helper()
	return r.must(&ipc.Bind{Addr: r.e.addrs.all[0].addr, Port: port}).(*ipc.BindOK).Sock
}

// put writes one submission descriptor; the engine sees it in its next turn.
func (r *raw) put(fill func(*shm.Entry)) {
	r.w.t.Helper()
	p := r.seg.SubProducer()
	e := p.Reserve()
	if e == nil {
		r.w.t.Fatal("submission ring full")
	}
	*e = shm.Entry{}
	fill(e)
	p.Publish()
	if shm.WakeNeeded(r.seg.DaemonAsleep()) {
		r.at.RingDaemon()
	}
}

// took gives the events that were taken back, as the library does.
func (r *raw) took() {
	ev := r.seg.EventConsumer()
	ev.Release()
	if ev.HalfTaken() && shm.WakeForRoom(r.seg.DaemonAsleep()) {
		r.at.RingDaemon()
	}
}

// read takes everything there is, and counts the messages.
func (r *raw) read() (n int) {
	ev, ret := r.seg.EventConsumer(), r.seg.RecvRetProducer()
	var e shm.Entry
	for ev.Next(&e) {
		if e.Kind() == uint8(shm.EvData) {
			n++
			ret.Put(e.Event().RxID)
		}
	}
	r.took()
	ret.Publish()
	if shm.WakeNeeded(r.seg.DaemonAsleep()) {
		r.at.RingDaemon()
	}
	return n
}

func (r *raw) open(sock, slot, cell uint32, to netip.Addr, port uint16) {
	r.w.t.Helper()
	r.put(func(e *shm.Entry) {
		*e.SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: sock, Slot: slot, Cell: cell, Port: port, Addr: to.As16(), Gen: 1}
	})
}

func (r *raw) sendMsg(sock, slot, id uint32, n int) {
	r.w.t.Helper()
	r.put(func(e *shm.Entry) {
		*e.Sub() = shm.Sub{Kind: shm.KindSend, Sock: sock, Slot: slot, MsgID: id, Len: uint32(n)}
	})
}

// alive fails the test if the engine ended the client.
func (r *raw) alive(want bool) {
	r.w.t.Helper()
	if r.cl.dead == want {
		r.w.t.Fatalf("client dead: %v (%v)", r.cl.dead, r.at.Reason())
	}
}

// clean detaches the clients and looks for what is left.
func (w *world) clean(clients ...*raw) {
	w.t.Helper()
	for _, r := range clients {
		r.at.Close()
	}
	w.run()
	w.net.At(w.net.Now()+100_000_000, func() {})
	w.run()
	w.run() // the end of an attempt to connect, seconds later, ends a run
	for i, e := range w.es {
		if l := Leaks(e); len(l) > 0 {
			w.t.Errorf("engine %d: left: %v", i, l)
		}
	}
}

// hostOf takes the up-calls of p's connection by queue pairs.
func hostOf(p *peer) *qpHost { return (*qpHost)(p.c.to.(*byQP)) }
