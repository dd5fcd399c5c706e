package rds

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// mixer sends to several sockets whatever a socket can send, in single calls and in
// batches. Each payload begins with its place in the order of its destination.
type mixer struct {
	t     *testing.T
	r     *rand.Rand
	from  *Socket
	to    []*Socket
	sent  []uint64 // by destination
	local *Buffer
	reg   *Region
}

// message is the next message of the batch whose payloads lie in mem.
func (x *mixer) message() Message {
	i := x.r.IntN(len(x.to))
	m := Message{Addr: x.to[i].LocalAddrPort()}
	size := 8 + x.r.IntN(60)
	switch x.r.IntN(40) {
	case 0:
		size = runMax - 3 + x.r.IntN(6)
	case 1:
		size = inlineCopy + 1
	case 2:
		m.Cookie = x.reg.Cookie()
	case 3:
		m.GiveUpAfter = time.Hour
	case 4:
		m.Op = &RDMA{Write: true, Cookie: x.reg.Cookie(), Local: []Segment{{x.local, 0, 8}}}
	}
	m.Payload = make([]byte, size)
	binary.LittleEndian.PutUint64(m.Payload, x.sent[i])
	x.sent[i]++
	return m
}

func (x *mixer) send(n int) {
	ms := make([]Message, n)
	for i := range ms {
		ms[i] = x.message()
	}
	if n == 1 && x.r.IntN(2) > 0 {
		if _, err := x.from.Send(context.Background(), &ms[0]); err != nil {
			x.t.Error(err)
		}
		return
	}
	if k, err := x.from.SendBatch(context.Background(), ms); k != n || err != nil {
		x.t.Errorf("%d of %d sent, %v", k, n, err)
	}
}

// wantOrder receives n datagrams, each in its place, by calls of several kinds.
func wantOrder(t *testing.T, s *Socket, n uint64) {
	ms := make([]Received, 7)
	for i := range ms {
		ms[i].Payload = make([]byte, inlineCopy+1)
	}
	for next := uint64(0); next < n; {
		k := 1
		var err error
		switch next % 3 {
		case 0:
			ms[0].N, _, err = s.RecvFrom(ms[0].Payload)
		case 1:
			peek := next&4 != 0
			if err = recvOr(bg(), s, &ms[0], peek); peek {
				_, _, _ = s.RecvFrom(nil)
			}
		default:
			k, err = s.RecvBatch(context.Background(), ms)
		}
		if err != nil {
			t.Error(err)
			return
		}
		for i := range k {
			if got := binary.LittleEndian.Uint64(ms[i].Payload); ms[i].N < 8 || got != next {
				t.Errorf("datagram %d came with %d bytes where %d was due", got, ms[i].N, next)
				return
			}
			next++
		}
	}
}

// TestRunOrder: whatever goes into runs and whatever does not arrives in the order in
// which it was sent to its destination, each once, while the daemon takes runs at any
// time. Afterwards nothing is charged.
func TestRunOrder(t *testing.T) {
	for name, p := range map[string]Params{
		"roomy":           {},
		"small rings":     {SubEntries: 16, EventEntries: 16},
		"few message ids": {MaxMsgs: 16},
	} {
		t.Run(name, func(t *testing.T) {
			d, a, b, local, _, reg := rdmaPair(t, Options{Params: p})
			x := &mixer{t: t, r: rand.New(rand.NewPCG(1, 2)), from: a, local: local, reg: reg,
				to: []*Socket{b, bindFake(t, a.c, "127.0.0.1:4002"), bindFake(t, a.c, "127.0.0.1:4003")}, sent: make([]uint64, 3)}
			for range 100 {
				old := append([]uint64(nil), x.sent...)
				x.round()
				for i, s := range x.to {
					x.sent[i] -= old[i]
					wantOrder(t, s, x.sent[i])
					x.sent[i] = 0
				}
				if t.Failed() {
					return
				}
			}
			d.do(func() {})
			wantIdle(t, a.c, a)
			wantReturned(t, d)
		})
	}
}

// round sends some batches, as far as the receive arena holds them.
func (x *mixer) round() {
	for range 20 {
		n := 1
		if x.r.IntN(3) > 0 {
			n = x.r.IntN(60) + 1
		}
		x.send(n)
	}
}

// TestRunOfManySenders: several goroutines send on one socket. Each one's datagrams arrive
// once and in its order.
func TestRunOfManySenders(t *testing.T) {
	d, a, b := pair(t, Options{})
	const senders, each = 4, 2000
	var wg sync.WaitGroup
	for g := range senders {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 0))
			for n := 0; n < each; {
				ms := make([]Message, min(1+r.IntN(20), each-n))
				for i := range ms {
					size := 8
					if r.IntN(100) == 0 {
						size = inlineCopy + 1
					}
					ms[i] = Message{Addr: b.LocalAddrPort(), Payload: make([]byte, size)}
					binary.LittleEndian.PutUint64(ms[i].Payload, uint64(g)<<32|uint64(n+i))
				}
				if k, err := a.SendBatch(context.Background(), ms); k != len(ms) || err != nil {
					t.Error(k, err)
					return
				}
				n += len(ms)
			}
		})
	}
	next := make([]uint32, senders)
	p := make([]byte, inlineCopy+1)
	for range senders * each {
		if _, _, err := b.RecvFrom(p); err != nil {
			t.Fatal(err)
		}
		v := binary.LittleEndian.Uint64(p)
		if g := v >> 32; uint32(v) != next[g] {
			t.Fatalf("datagram %d of sender %d came where %d was due", uint32(v), g, next[g])
		}
		next[v>>32]++
	}
	wg.Wait()
	d.do(func() {})
	wantIdle(t, a.c, a)
	wantReturned(t, d)
}
