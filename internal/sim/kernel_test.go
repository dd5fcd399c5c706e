package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// kworld is a daemon with one process and a kernel peer. The rules are those of
// a kernel peer (docs/guarantees.md): every datagram arrives once and in order,
// over any number of breaks; an operation that says SUCCESS has its data in
// place, and its message arrives; what cannot be known is UNKNOWN.
type kworld struct {
	t    *testing.T
	seed uint64
	net  *sim.Network
	r    *rand.Rand
	e    *engine.Engine
	c    *rds.Client
	k    *kpeer
	bad  bool // operations on keys that are not there
	saw  map[string]int

	socks  []*rds.Socket
	out    []*kwmsg // ours, by id
	in     []*kwmsg // the kernel's, by id
	last   map[[4]uint16]int
	ports  []uint16
	mem    []byte // the kernel's region
	cookie uint64
	buf    *rds.Buffer
	local  int // used of buf
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
	off      int // in the target
	loc      int // in buf
	n        int
	status   rds.Status
	settled  bool
	kop      *kop
	ended    bool // the kernel's: acked, or dropped
	acked    bool
	region   *kwregion
	carrying *kwregion
}

// kwregion is a region of ours that a kernel was told.
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
	w.t.Helper()
	panic(&violation{rule: "kernel", text: fmt.Sprintf("seed %d: ", w.seed) + fmt.Sprintf(format, args...)})
}

var (
	kwOurs   = netip.MustParseAddr("127.0.1.1")
	kwKernel = netip.MustParseAddr("127.0.1.2")
)

type kwBell struct{ w *kworld }

func (b kwBell) Wait(int64)   { b.w.step() }
func (b kwBell) Ring()        {}
func (b kwBell) Close() error { return nil }

func newKworld(t *testing.T, seed uint64, overflow int) *kworld {
	w := &kworld{t: t, seed: seed, net: sim.NewNetwork(seed), saw: map[string]int{}, last: map[[4]uint16]int{}}
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
		Trace: func(_, _ netip.Addr, what string, err error) {
			w.saw[what]++
			if err != nil && what != "down" && what != "connect failed" {
				w.saw[what+": "+err.Error()]++
			}
		},
	}, st)
	must(err)
	must(w.e.AddLocal(kwOurs))
	w.c = w.attach(0)
	w.k = newKpeer(w.net, kwKernel, kwOurs, w.net.Rand(3))
	w.k.fail = w.fatalf
	w.k.up = func() { w.saw["kernel up"]++ }
	w.mem = make([]byte, 1<<20)
	_, w.cookie = w.k.register(w.mem)
	w.buf, err = w.c.Alloc(4 << 20)
	must(err)
	for i := range uint16(2) {
		s, err := w.c.Bind(netip.AddrPortFrom(kwOurs, 100+i))
		must(err)
		must(s.SetRcvBuf(pick(w.r, 3000, 100_000)))
		must(s.SetSndBuf(pick(w.r, 20_000, 1<<20)))
		w.socks = append(w.socks, s)
		port := 200 + i
		w.ports = append(w.ports, port)
		w.k.socks[port] = &ksock{port: port, limit: pick(w.r, 3000, 100_000), got: w.kernelGot}
	}
	w.scr = make([]byte, 1<<20)
	return w
}

// attach is a process of a user.
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

func (w *kworld) turn() bool { return w.e.Turn(w.net.Now(), wall0+w.net.Now()) }

// step moves the world on.
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

func kwContent(id uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id*131 + uint64(i)*7 + uint64(i)>>8)
	}
	return b
}

func (w *kworld) payload(id uint64, n int) []byte {
	b := kwContent(id, max(n, 12))
	binary.BigEndian.PutUint64(b, id)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)))
	return b
}

func (w *kworld) size() int {
	switch w.r.IntN(12) {
	case 0:
		return pick(w.r, 4095, 4096, 4097, 8192, 8193)
	case 1:
		return 12 + w.r.IntN(60_000)
	case 2:
		if w.r.IntN(10) == 0 {
			return 1 << 20
		}
	}
	return 12 + w.r.IntN(500)
}

func (w *kworld) next(dir, sport, dport uint16) (f [4]uint16, idx int) {
	f = [4]uint16{dir, sport, dport}
	w.last[[4]uint16{dir, sport, dport, 1}]++
	return f, w.last[[4]uint16{dir, sport, dport, 1}]
}

// send is a message of ours.
func (w *kworld) send() {
	s := w.socks[w.r.IntN(len(w.socks))]
	port := w.ports[w.r.IntN(len(w.ports))]
	id := uint64(len(w.out))
	m := &kwmsg{size: min(w.size(), s.SndBuf()), status: kwOpen}
	msg := rds.Message{Payload: w.payload(id, m.size), Addr: w.to(port), DontWait: true}
	switch k := w.r.IntN(10); {
	case k < 3 && w.saw["up"] > 0: // a cookie came with a message
		n := 1 + w.r.IntN(9000)
		if w.local+n > 2<<20 || w.local+n > len(w.mem)/2 { // each byte once
			return
		}
		m.op, m.write, m.n, m.loc, m.off = true, w.r.IntN(2) == 0, n, w.local, w.local
		w.local += n
		m.badKey = w.bad && w.r.IntN(6) == 0
		cookie := w.cookie
		if m.badKey {
			cookie ^= 0x5a5a00
		}
		copy(w.buf.Bytes()[m.loc:], kwContent(id+1<<40, n))
		op := &rds.RDMA{Kind: rds.Read, Cookie: rds.Cookie(cookie), RemoteOff: uint64(m.off), Token: id, Notify: true,
			Local: []rds.Segment{{Buf: w.buf, Off: m.loc, Len: n}}}
		if m.write {
			op.Kind = rds.Write
		} else {
			copy(w.mem[w.cookie>>32+uint64(m.off):], kwContent(id+2<<40, n))
		}
		if w.r.IntN(6) == 0 {
			m.silent, op.Silent, msg.Payload = true, true, nil
		}
		msg.Op = op
	case k == 3:
		if r := w.region(s); r != nil {
			msg.Cookie = r.r.Cookie()
			m.carrying = r
		}
	}
	m.flow, m.idx = w.next(0, s.LocalAddrPort().Port(), port)
	_, err := s.SendMsg(&msg)
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOBUFS):
		w.last[[4]uint16{0, m.flow[1], m.flow[2], 1}]--
		w.saw["send: "+errors.Unwrap(err).Error()]++
		return
	case err != nil:
		w.fatalf("send: %v", err)
	}
	w.out = append(w.out, m)
}

// region registers memory of ours for the kernel, as long as there is some.
func (w *kworld) region(s *rds.Socket) *kwregion {
	r := &kwregion{off: 2<<20 + len(w.free)*kwRegion, once: w.r.IntN(3) == 0}
	if r.off+kwRegion > w.buf.Len() {
		return nil
	}
	a := rds.AllowRead | rds.AllowWrite
	if r.once {
		a |= rds.UseOnce
	}
	var err error
	r.r, err = s.Register(w.buf, r.off, kwRegion, a)
	must(err)
	w.free = append(w.free, r)
	return r
}

// kernelGot checks what arrives at the kernel.
func (w *kworld) kernelGot(inc *kinc) {
	if inc.h.SPort == 0 {
		w.saw["pong to the kernel"]++
		return
	}
	id := binary.BigEndian.Uint64(inc.data)
	if id >= uint64(len(w.out)) {
		w.fatalf("message %d to the kernel was never sent", id)
	}
	m := w.out[id]
	if want := w.payload(id, m.size); !bytes.Equal(inc.data, want) {
		w.fatalf("message %d: %d bytes are not the %d sent", id, len(inc.data), len(want))
	}
	if f := [4]uint16{0, inc.h.SPort, inc.h.DPort}; f != m.flow || m.idx <= w.last[f] {
		w.fatalf("message %d of flow %v, place %d after %d of %v", id, m.flow, m.idx, w.last[f], f)
	}
	w.last[m.flow] = m.idx
	if m.got++; m.got > 1 || m.silent {
		w.fatalf("message %d arrived %d times, silent %v", id, m.got, m.silent)
	}
	if m.op {
		if m.badKey {
			w.fatalf("message %d of an operation without a key arrived", id)
		}
		w.placed(id, m)
		if inc.ext.RDMA != 1 || inc.ext.RDMAKeys[0] != uint32(w.cookie) {
			w.fatalf("message %d of an operation: extension headers %+v", id, inc.ext)
		}
	}
	if r := m.carrying; r != nil {
		if !inc.ext.HasDest || inc.ext.Dest != uint64(r.r.Cookie()) {
			w.fatalf("message %d carries a cookie: extension headers %+v", id, inc.ext)
		}
		w.saw["cookie"]++
		w.kernelSend(m.flow[2], m.flow[1], r)
	}
}

// placed checks that the data of a WRITE, or of a READ, is where it belongs.
func (w *kworld) placed(id uint64, m *kwmsg) {
	at, want := w.mem[w.cookie>>32+uint64(m.off):], kwContent(id+1<<40, m.n)
	if !m.write {
		at, want = w.buf.Bytes()[m.loc:], kwContent(id+2<<40, m.n)
	}
	if !bytes.Equal(at[:m.n], want) {
		w.fatalf("operation %d, write %v: its data is not in place", id, m.write)
	}
}

// kernelSend is a message of the kernel's, with an operation if r is not nil.
func (w *kworld) kernelSend(sport, dport uint16, r *kwregion) {
	id := uint64(len(w.in))
	m := &kwmsg{size: w.size()}
	if r != nil {
		m.region, m.op, m.write = r, true, w.r.IntN(2) == 0
		m.kop = &kop{write: m.write, cookie: uint64(r.r.Cookie()), fence: !m.write, mem: kwContent(id+3<<40, kwRegion)}
		if w.bad && w.r.IntN(4) == 0 {
			m.badKey = true
			m.kop.off = 1
		}
		r.used = true
	}
	m.flow, m.idx = w.next(1, sport, dport)
	if !w.k.sendmsg(sport, dport, w.payload(id, m.size), 0, m.kop, id, func(acked bool) { m.ended, m.acked = true, acked }) {
		w.last[[4]uint16{1, sport, dport, 1}]--
		w.saw["kernel: ENOBUFS"]++
		return
	}
	w.in = append(w.in, m)
}

// receive takes what has arrived at our sockets.
func (w *kworld) receive(s *rds.Socket) {
	msg := rds.Message{Payload: w.scr, DontWait: true}
	for {
		err := s.RecvMsg(&msg)
		if errors.Is(err, rds.ErrWouldBlock) {
			break
		}
		if err != nil {
			w.fatalf("receive: %v", err)
		}
		b := w.scr[:msg.N]
		if msg.Addr.Addr() != kwKernel || msg.Len != msg.N {
			w.fatalf("message of %v, %d bytes of %d", msg.Addr, msg.N, msg.Len)
		}
		if msg.Addr.Port() == 0 { // pong
			w.saw["pong"]++
			continue
		}
		id := binary.BigEndian.Uint64(b)
		m := w.in[id]
		if !bytes.Equal(b, w.payload(id, m.size)) {
			w.fatalf("message %d of the kernel is not what it sent", id)
		}
		if f := [4]uint16{1, msg.Addr.Port(), s.LocalAddrPort().Port()}; f != m.flow || m.idx <= w.last[f] {
			w.fatalf("message %d of the kernel, flow %v, place %d after %d of %v", id, m.flow, m.idx, w.last[f], f)
		}
		w.last[m.flow] = m.idx
		if m.got++; m.got > 1 {
			w.fatalf("message %d of the kernel arrived %d times", id, m.got)
		}
		if r := m.region; r != nil {
			at := w.buf.Bytes()[r.off:][:kwRegion]
			if m.badKey || m.write && !bytes.Equal(at, kwContent(id+3<<40, kwRegion)) {
				w.fatalf("message %d: its WRITE is not in place", id)
			}
			if err := r.r.Expose(context.Background(), msg.Addr); r.once != errors.Is(err, syscall.EINVAL) || !r.once && err != nil {
				w.fatalf("a region for one use %v, after its use: %v", r.once, err)
			}
			must(r.r.Release(context.Background()))
			w.saw["released"]++
		}
	}
	var cs [16]rds.Completion
	for n := s.Completions(cs[:]); n > 0; n = s.Completions(cs[:]) {
		for _, c := range cs[:n] {
			w.settled(s, &c)
		}
	}
}

func (w *kworld) settled(s *rds.Socket, c *rds.Completion) {
	m := w.out[c.Token]
	if m.settled {
		w.fatalf("operation %d has two statuses, %v and %v", c.Token, m.status, c.Status)
	}
	m.settled, m.status = true, c.Status
	w.saw[c.Status.String()]++
	switch c.Status {
	case rds.Success:
		w.placed(c.Token, m)
	case rds.RemoteError:
		if !m.badKey {
			w.fatalf("operation %d failed, and its key was good: errno %v", c.Token, c.Errno)
		}
	case rds.Dropped:
		if m.got > 0 {
			w.fatalf("operation %d is dropped, and its message has arrived", c.Token)
		}
	case rds.Unknown:
	default:
		w.fatalf("operation %d: %v", c.Token, c.Status)
	}
}

func (w *kworld) run(msgs int) {
	for i := 0; len(w.out)+len(w.in) < msgs; i++ {
		if i > 400*msgs {
			w.fatalf("only %d messages after %d steps", len(w.out)+len(w.in), i)
		}
		switch k := w.r.IntN(40); {
		case k < 8:
			w.send()
		case k < 14:
			w.kernelSend(w.ports[w.r.IntN(2)], 100+uint16(w.r.IntN(2)), nil)
		case k < 18:
			w.receive(w.socks[w.r.IntN(2)])
		case k < 26:
			w.k.recvmsg(w.k.socks[w.ports[w.r.IntN(2)]])
		case k == 26 && w.r.IntN(8) == 0: // a ping
			_, _ = w.socks[0].SendMsg(&rds.Message{Addr: w.to(0), DontWait: true})
		case k == 27 && w.r.IntN(8) == 0:
			w.k.sendmsg(w.ports[0], 0, nil, 0, nil, 0, nil)
		case k == 28 && w.bad && w.r.IntN(20) == 0:
			w.k.drop()
		}
		w.step()
	}
	w.net.Faults = sim.Faults{}
	w.bad = false
	for i := 0; !w.quiet(); i++ {
		for _, s := range w.socks {
			w.receive(s)
		}
		for _, p := range w.ports {
			for w.k.recvmsg(w.k.socks[p]) {
			}
		}
		w.step()
		if i > 1_000_000 {
			w.fatalf("never comes to rest: kernel %d, %d queued, %d unacked; %+v", w.k.state, len(w.k.sendq), len(w.k.retrans), engine.Conns(w.e))
		}
	}
	w.verify()
}

func (w *kworld) quiet() bool {
	if len(w.k.sendq)+len(w.k.retrans) > 0 {
		for _, m := range append(w.k.retrans, w.k.sendq...) {
			if m.h.DPort > 1 && m.h.Seq < w.k.nextTx-16 { // a kernel leaves a few unacked for ever
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
	for _, i := range engine.Conns(w.e) {
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
	must(w.c.Close())
	w.saw["duplicates at the kernel"] += w.k.dups
	w.saw["bounces"] += w.k.bounces
	w.saw["rejected by the kernel"] += w.k.rejected
	for _, i := range engine.Conns(w.e) {
		w.saw["duplicates"] += int(i.Stats.RecvDropOldSeq)
		w.saw["raced"] += int(i.Stats.ConnectRaced)
		if !i.Kernel || i.Stats.ProtocolErrors > 0 {
			w.fatalf("kernel %v, %d protocol errors: %v", i.Kernel, i.Stats.ProtocolErrors, i.LastError)
		}
	}
}

// TestKernelPeer runs a daemon against the model of a kernel, in calm, with
// breaks, and with bad keys and drops.
func TestKernelPeer(t *testing.T) {
	seeds := 12
	if s := os.Getenv("RDSD_SIM_SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("RDSD_SIM_SEEDS=%q", s)
		}
		seeds = n
	}
	if testing.Short() {
		seeds = min(seeds, 3)
	}
	for _, c := range []struct {
		name string
		set  func(w *kworld)
		must []string
	}{
		{"calm", func(w *kworld) {}, []string{"success", "pong", "released", "kernel: ENOBUFS", "cookie", "pong to the kernel"}},
		{"breaks", func(w *kworld) {
			w.net.Faults.BreakAll(pick[uint32](w.r, 300, 3000))
			w.net.Faults.HalfOpen = 200_000
			w.net.Faults.Refuse, w.net.Faults.Lost = 100_000, 20_000
			w.net.Timing.Late.Max = 30e6
		}, []string{"success", "unknown", "duplicates", "duplicates at the kernel", "raced"}},
		{"bad keys", func(w *kworld) { w.bad = true }, []string{"success", "remote error", "dropped", "duplicates at the kernel"}},
		{"post failures", func(w *kworld) { w.net.Faults.PostFail = 500 }, []string{"success", "bounces"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			saw := map[string]int{}
			for i := range seeds {
				seed := *first + uint64(i)
				if *oneSeed != 0 {
					seed = *oneSeed
				}
				func() {
					w := newKworld(t, seed, 16<<20)
					defer func() {
						if p := recover(); p != nil {
							v, ok := p.(*violation)
							if !ok {
								t.Log("seed", seed)
								panic(p)
							}
							t.Errorf("%v (replay: go test ./internal/sim -run '%s' -sim.seed=%d)\nsaw %v", v, t.Name(), seed, w.saw)
						}
					}()
					c.set(w)
					w.run(400)
					for k, n := range w.saw {
						saw[k] += n
					}
				}()
				if *oneSeed != 0 || t.Failed() {
					return
				}
			}
			t.Log(saw)
			for _, k := range c.must {
				if saw[k] == 0 && !testing.Short() {
					t.Errorf("never saw %q", k)
				}
			}
		})
	}
}
