package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

// crowd is one process that sends and many that receive, in lockstep. In every tick the network
// moves, each engine turns once and each process looks at its sockets once. So two runs differ
// only in what their options change.
type crowd struct {
	t     *testing.T
	net   *sim.Network
	hosts []*crowdHost
	opt   crowdOptions

	all   []*rds.Client
	load  *rds.Socket // sends to the readers
	flood *rds.Socket // sends to the stuck receiver: the same socket, or one in another lane

	readers []*rds.Socket
	to      []netip.AddrPort
	next    int   // number of the load's next message
	first   int64 // when message 0 is due
	got     []int // how many messages each reader got
	took    []int64
	wait    int // ticks in which a due message could not be sent

	stuck *stuckOne
	buf   []byte
}

type crowdOptions struct {
	engine.Config
	local bool // the receivers are on the sender's host
	stuck bool // one receiver does not read
	dead  bool // ... and its process does not look at its rings
	lanes bool // the stuck receiver is sent to in another lane

	rcvBuf int // receive buffer of the stuck receiver
}

// crowdHost is a host of a crowd.
type crowdHost struct {
	addr  netip.Addr
	e     *engine.Engine
	st    *stats.Block
	turns int // turns that found work
}

// stuckOne is the receiver that does not read, and what is known of it.
type stuckOne struct {
	s, other  *rds.Socket // other is a second socket of the process, to which nobody sends
	at        netip.AddrPort
	sent, got int
	congested int // sends that failed because of congestion
	full      int
	awake     bool
}

const (
	crowdTick    = 2_000 // virtual ns
	crowdReaders = 63
	crowdSize    = 1000   // bytes of payload
	crowdGap     = 12_000 // virtual ns between messages of the load, with idle turns between
	crowdLoad    = 1_260  // messages of the load
	crowdSndBuf  = 1 << 20
	stuckBurst   = 40 // most messages to the stuck receiver in a tick
)

// noWait is the waiter of a process that never sleeps. No call in a crowd waits.
type noWait struct{}

func (noWait) Wait(int64)   { broken("harness", "a call waits") }
func (noWait) Ring()        {}
func (noWait) Close() error { return nil }

func newCrowd(t *testing.T, o crowdOptions) *crowd {
	c := &crowd{t: t, net: sim.NewNetwork(1), opt: o, buf: make([]byte, crowdSize)}
	even := func(ns int64) sim.Range { return sim.Range{Min: ns, Max: ns} }
	c.net.Timing = sim.Timing{Gap: even(100), Wire: even(5_000), Local: even(5_000)}
	n := 2
	if o.local {
		n = 1
	}
	for i := range n {
		c.boot(i)
	}
	c.tick()
	there := c.hosts[n-1]
	tx := c.attach(c.hosts[0])
	c.load = c.bind(tx, c.hosts[0], 10)
	c.flood = c.load
	if o.lanes {
		must(c.load.SetLane(1))
		c.flood = c.bind(tx, c.hosts[0], 11)
	}
	for i := range crowdReaders {
		s := c.bind(c.attach(there), there, uint16(100+i))
		c.readers = append(c.readers, s)
		c.to = append(c.to, netip.AddrPortFrom(there.addr, uint16(100+i)))
	}
	c.got = make([]int, crowdReaders)
	if o.stuck {
		p := c.attach(there)
		x := &stuckOne{at: netip.AddrPortFrom(there.addr, 99)}
		x.s, x.other = c.bind(p, there, 99), c.bind(p, there, 98)
		must(x.s.SetRcvBuf(o.rcvBuf))
		c.stuck = x
	}
	return c
}

func (c *crowd) boot(i int) {
	h := &crowdHost{addr: netip.AddrFrom4([4]byte{127, 0, 2, byte(i + 1)})}
	cfg := c.opt.Config
	r := c.net.Rand(uint64(i))
	cfg.Instance, cfg.Rand = uint64(i)+1, r.Uint64
	cfg.SendBufs, cfg.RecvBufs = 256, 1024
	cfg.Alloc = func(n int) []byte { return make([]byte, n) }
	cfg.StartSeq = func() uint64 { return 1 }
	var err error
	h.st, err = stats.NewBlock(make([]uint64, stats.Size/8+1), stats.Info{})
	must(err)
	h.e, err = engine.New(c.net.Device(h.addr), cfg, h.st)
	must(err)
	must(h.e.AddLocal(h.addr))
	c.hosts = append(c.hosts, h)
}

func (c *crowd) now() int64 { return c.net.Now() }

func (h *crowdHost) turn(now int64) {
	if h.e.Turn(now, engine.Wall(wall0+now)) {
		h.turns++
	}
}

func (c *crowd) attach(h *crowdHost) *rds.Client {
	at := engine.NewInProcess(h.e, func(f func()) {
		h.e.Do(f)
		h.e.Turn(c.now(), engine.Wall(wall0+c.now()))
	}, func() {})
	p, err := rds.Open(attach.Through(context.Background(), attach.Way{Control: at, Wake: noWait{}}), rds.Options{Spin: -1, Params: rds.Params{
		SubEntries: 1024, EventEntries: 64, MaxMsgs: 2048, MaxRx: 64, Slots: 128, Cells: 16, SendWindows: 1, RecvWindows: 1}})
	must(err)
	c.all = append(c.all, p)
	return p
}

func (c *crowd) bind(p *rds.Client, h *crowdHost, port uint16) *rds.Socket {
	s, err := p.Bind(netip.AddrPortFrom(h.addr, port))
	must(err)
	must(s.SetSndBuf(crowdSndBuf))
	return s
}

// tick lets crowdTick of virtual time pass.
func (c *crowd) tick() {
	end := c.now() + crowdTick
	c.net.At(end, func() {})
	for c.now() < end {
		c.net.Step()
	}
	for at, ok := c.net.NextEvent(); ok && at <= end; at, ok = c.net.NextEvent() {
		c.net.Step()
	}
	for _, h := range c.hosts {
		h.turn(end)
	}
	for i, s := range c.readers {
		c.read(i, s)
	}
	if x := c.stuck; x != nil {
		c.look(x)
	}
}

// put sends message n on s.
func (c *crowd) put(s *rds.Socket, to netip.AddrPort, n int) error {
	binary.LittleEndian.PutUint64(c.buf, uint64(n))
	_, err := s.Send(rds.DontWait, &rds.Message{Addr: to, Payload: c.buf})
	return err
}

// take receives a message and returns its number, or -1 if there is none.
func (c *crowd) take(s *rds.Socket) int {
	m := rds.Received{Payload: c.buf}
	switch err := s.Recv(rds.DontWait, &m); {
	case errors.Is(err, rds.ErrWouldBlock):
		return -1
	case err != nil || m.N != crowdSize:
		c.t.Fatalf("receive: %d bytes, %v", m.N, err)
	}
	return int(binary.LittleEndian.Uint64(c.buf))
}

// read takes all messages of reader i and checks their order.
func (c *crowd) read(i int, s *rds.Socket) {
	for n := c.take(s); n >= 0; n = c.take(s) {
		if want := i + c.got[i]*crowdReaders; n != want {
			c.t.Fatalf("reader %d got message %d, want %d", i, n, want)
		}
		c.got[i]++
		c.took[n] = c.now() - c.due(n)
	}
}

// due returns the virtual time at which message n of the load is to be sent.
func (c *crowd) due(n int) int64 { return c.first + int64(n)*crowdGap }

// look does what the stuck process does in a tick.
func (c *crowd) look(x *stuckOne) {
	if !c.opt.dead || x.awake {
		if n := c.take(x.other); n >= 0 {
			c.t.Fatalf("message %d came to the wrong socket", n)
		}
	}
	if !x.awake {
		return
	}
	for n := c.take(x.s); n >= 0; n = c.take(x.s) {
		if n != x.got {
			c.t.Fatalf("the stuck receiver got message %d, want %d", n, x.got)
		}
		x.got++
	}
}

// send sends the messages of the load that are due.
func (c *crowd) send() {
	for ; c.next < crowdLoad && c.due(c.next) <= c.now(); c.next++ {
		switch err := c.put(c.load, c.to[c.next%crowdReaders], c.next); {
		case errors.Is(err, rds.ErrWouldBlock) && !errors.Is(err, rds.ErrCongested):
			c.wait++
			return
		case err != nil:
			c.t.Fatalf("message %d at %d µs: %v", c.next, c.now()/1000, err)
		}
	}
}

// pour sends as much as it can to the stuck receiver, up to total messages in all.
func (c *crowd) pour(total int) {
	x := c.stuck
	for i := 0; x != nil && i < stuckBurst && x.sent < total; i++ {
		switch err := c.put(c.flood, x.at, x.sent); {
		case errors.Is(err, rds.ErrCongested):
			x.congested++
			return
		case errors.Is(err, rds.ErrWouldBlock):
			x.full++
			return
		case err != nil:
			c.t.Fatalf("flood: %v", err)
		}
		x.sent++
	}
}

// close closes all processes and checks that the engines have nothing left.
func (c *crowd) close() {
	for _, p := range c.all {
		must(p.Close())
	}
	for range 2_000 {
		for _, h := range c.hosts {
			h.turn(c.now())
		}
		c.net.At(c.now()+crowdTick, func() {})
		c.net.Step()
	}
	for i, h := range c.hosts {
		if left := engine.Leaks(h.e); len(left) > 0 {
			c.t.Errorf("host %d: left: %q", i, left)
		}
	}
}
