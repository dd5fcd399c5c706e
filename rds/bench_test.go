package rds

import (
	"context"
	"math"
	"net/netip"
	"testing"
	"time"
)

// pause stops the daemon's goroutine; it works in step only, in the test's own
// goroutine: what is measured is the client alone.
func (d *fakeDaemon) pause() (resume func()) {
	d.mu.Lock() // lockedTurn waits
	d.seg.DaemonAsleep().Store(0)
	return d.mu.Unlock
}

func (d *fakeDaemon) step() {
	for d.turn() {
	}
}

const (
	batch     = 512
	scattered = 64 // destinations
)

// flow sends and receives in batches between two sockets.
type flow struct {
	t        testing.TB
	d        *fakeDaemon
	from, to *Socket
	p, buf   []byte
	ms       []Received
	out      []Message
	many     []*Socket

	mem     *Buffer // of sendAll
	all     Message
	cookies [batch]uint32
}

func newFlow(t testing.TB, n int, p Params) *flow {
	d, a, b := pair(t, Options{Spin: -1, Params: p})
	if err := a.SetSndBuf(3 * batch * n); err != nil {
		t.Fatal(err)
	}
	if err := b.SetRcvBuf(3 * batch * n); err != nil {
		t.Fatal(err)
	}
	return &flow{t: t, d: d, from: a, to: b, p: make([]byte, n), buf: make([]byte, n), ms: make([]Received, batch), out: make([]Message, batch)}
}

func (f *flow) send() {
	to := f.to.LocalAddrPort()
	for range batch {
		if _, err := f.from.SendTo(f.p, to); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *flow) recv() {
	for range batch {
		if n, _, err := f.to.RecvFrom(f.buf); err != nil || n != len(f.p) {
			f.t.Fatal(n, err)
		}
	}
}

func (f *flow) sendMsgs() {
	for i := range f.out {
		f.out[i] = Message{Payload: f.p, Addr: f.to.LocalAddrPort()}
	}
	if n, err := f.from.SendBatch(context.Background(), f.out); n != batch || err != nil {
		f.t.Fatal(n, err)
	}
}

func (f *flow) recvMsgs() {
	for i := range f.ms {
		f.ms[i] = Received{Payload: f.buf}
	}
	if n, err := f.to.RecvBatch(context.Background(), f.ms); n != batch || err != nil {
		f.t.Fatal(n, err)
	}
}

// sendApart sends each message in a run of its own, as to a daemon that keeps up.
func (f *flow) sendApart() {
	to := f.to.LocalAddrPort()
	for range batch {
		f.from.noticed.Add(1) // what follows a notice opens a run
		if _, err := f.from.SendTo(f.p, to); err != nil {
			f.t.Fatal(err)
		}
	}
}

// sendByTurns sends to two destinations by turns, with a call for each message.
func (f *flow) sendByTurns() {
	to := [...]netip.AddrPort{f.to.LocalAddrPort(), f.from.LocalAddrPort()}
	for i := range batch {
		if _, err := f.from.SendTo(f.p, to[i%2]); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *flow) recvBoth() {
	for i := range batch {
		s := f.to
		if i >= batch/2 {
			s = f.from
		}
		if n, _, err := s.RecvFrom(f.buf); err != nil || n != len(f.p) {
			f.t.Fatal(n, err)
		}
	}
}

// sendAround sends to two destinations by turns, in batches.
func (f *flow) sendAround() {
	for i := range f.out {
		f.out[i] = Message{Payload: f.p, Addr: f.to.LocalAddrPort()}
		if i%2 > 0 {
			f.out[i].Addr = f.from.LocalAddrPort()
		}
	}
	if n, err := f.from.SendBatch(context.Background(), f.out); n != batch || err != nil {
		f.t.Fatal(n, err)
	}
}

// scatter sends to scattered destinations by turns, in batches.
func (f *flow) scatter() {
	if f.many == nil {
		for i := range scattered {
			s, err := f.to.c.Bind(netip.AddrPortFrom(f.to.LocalAddrPort().Addr(), uint16(20000+i)))
			if err != nil {
				f.t.Fatal(err)
			}
			f.many = append(f.many, s)
		}
	}
	for i := range f.out {
		f.out[i] = Message{Payload: f.p, Addr: f.many[i%scattered].LocalAddrPort()}
	}
	if n, err := f.from.SendBatch(context.Background(), f.out); n != batch || err != nil {
		f.t.Fatal(n, err)
	}
}

func (f *flow) gather() {
	for _, s := range f.many {
		for n := 0; n < batch/scattered; {
			ms := f.ms[:batch/scattered-n]
			for i := range ms {
				ms[i] = Received{Payload: f.buf}
			}
			k, err := s.RecvBatch(context.Background(), ms)
			if err != nil {
				f.t.Fatal(err)
			}
			n += k
		}
	}
}

// recvPieces receives runs in pieces, each datagram after a look at it.
func (f *flow) recvPieces() {
	for _, s := range []*Socket{f.to, f.from} {
		for n := 0; n < batch/2; {
			f.ms[0] = Received{Payload: f.buf}
			if _, err := (kernelSocket{s}).Recv(&f.ms[0], true); err != nil {
				f.t.Fatal(err)
			}
			ms := f.ms[:min(3, batch/2-n)]
			for i := range ms {
				ms[i] = Received{Payload: f.buf}
			}
			k, err := s.RecvBatch(context.Background(), ms)
			if err != nil {
				f.t.Fatal(err)
			}
			n += k
		}
	}
}

// sendAll sends messages with everything there is but promises of statuses.
func (f *flow) sendAll() {
	if f.mem == nil {
		f.mem = mustAlloc(f.t, f.from.c, 4096)
		remote := mustAlloc(f.t, f.to.c, 4096)
		r, err := f.to.Register(remote, 0, 4096, AllowWrite|AllowAtomic)
		if err != nil {
			f.t.Fatal(err)
		}
		f.all = Message{Addr: f.to.LocalAddrPort(), From: Segment{f.mem, 0, len(f.p)}, ZeroCopy: true, GiveUpAfter: time.Minute,
			Op:     &RDMA{Write: true, Cookie: r.Cookie(), Local: []Segment{{f.mem, 64, 8}, {f.mem, 128, 8}}},
			Atomic: &Atomic{Cookie: r.Cookie(), RemoteOff: 256, Local: Segment{f.mem, 256, 8}, Add: 1}}
	}
	for range batch {
		if _, err := f.from.Send(context.Background(), &f.all); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *flow) recvAll() {
	f.recv()
	if n := f.from.ZeroCopyDone(f.cookies[:]); n != batch {
		f.t.Fatalf("%d cookies", n)
	}
}

// TestNoAllocs: sending and receiving allocate nothing once the destination is
// known.
func TestNoAllocs(t *testing.T) {
	for _, tt := range []struct {
		name       string
		send, recv func(*flow)
	}{
		{"SendTo, RecvFrom", (*flow).send, (*flow).recv},
		{"SendBatch, RecvBatch", (*flow).sendMsgs, (*flow).recvMsgs},
		{"runs of one", (*flow).sendApart, (*flow).recv},
		{"many destinations", (*flow).scatter, (*flow).gather},
		{"two destinations, received in pieces", (*flow).sendAround, (*flow).recvPieces},
		{"Send with everything", (*flow).sendAll, (*flow).recvAll},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFlow(t, 64, Params{SubEntries: 8 * batch})
			tt.send(f) // makes what it needs
			f.d.do(func() {})
			tt.recv(f)
			defer f.d.pause()()
			// The count is the whole process's, and the runtime and the race
			// detector allocate now and then: what a call allocates is seen
			// in every round, so the round with the fewest is the measure.
			sent, received := math.Inf(1), math.Inf(1)
			for range 5 {
				// Two runs of batch messages each, one to warm up.
				f.d.step()
				sent = min(sent, testing.AllocsPerRun(1, func() { tt.send(f) }))
				f.d.step()
				received = min(received, testing.AllocsPerRun(1, func() { tt.recv(f) }))
			}
			if sent != 0 || received != 0 {
				t.Errorf("%d messages: %v allocations to send, %v to receive", batch, sent, received)
			}
		})
	}
}

// benchmarkFlow reports the fastest round: what else the machine does only makes rounds longer.
func benchmarkFlow(b *testing.B, n int, send, recv func(*flow)) {
	f := newFlow(b, n, Params{})
	send(f) // makes what it needs
	f.d.do(func() {})
	recv(f)
	defer f.d.pause()()
	tx, rx := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for b.Loop() {
		t0 := time.Now()
		send(f)
		t1 := time.Now()
		f.d.step()
		t2 := time.Now()
		recv(f)
		t3 := time.Now()
		tx, rx = min(tx, t1.Sub(t0)), min(rx, t3.Sub(t2))
		f.d.step()
	}
	b.ReportMetric(float64(tx)/batch, "ns/send")
	b.ReportMetric(float64(rx)/batch, "ns/recv")
}

func BenchmarkSendToRecvFrom64(b *testing.B) { benchmarkFlow(b, 64, (*flow).send, (*flow).recv) }
func BenchmarkSendToRecvFrom4K(b *testing.B) { benchmarkFlow(b, 4096, (*flow).send, (*flow).recv) }
func BenchmarkByTurns64(b *testing.B)        { benchmarkFlow(b, 64, (*flow).sendByTurns, (*flow).recvBoth) }
func BenchmarkApart64(b *testing.B)          { benchmarkFlow(b, 64, (*flow).sendApart, (*flow).recv) }
func BenchmarkBatch64(b *testing.B) {
	benchmarkFlow(b, 64, (*flow).sendMsgs, (*flow).recvMsgs)
}

func BenchmarkScatter64(b *testing.B) {
	benchmarkFlow(b, 64, (*flow).scatter, (*flow).gather)
}
