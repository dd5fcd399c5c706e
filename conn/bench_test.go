package conn

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/internal/runs"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// fastQP hands SENDs straight to the other Conn's HandleRecv when pumped.
type fastQP struct {
	verbs.QP // what conn does not use
	num      uint32
	mem      map[uint32][]byte
	sends    []fastSend
	gather   []byte
}

type fastSend struct {
	wrid uint64
	buf  []byte
}

func (q *fastQP) Num() uint32                          { return q.num }
func (q *fastQP) State() verbs.QPState                 { return verbs.QPRTS }
func (q *fastQP) Cap() verbs.QPCap                     { return verbs.QPCap{} }
func (q *fastQP) Context() any                         { return nil }
func (q *fastQP) PostRecv([]verbs.RecvWR) (int, error) { return 0, nil }
func (q *fastQP) ToError()                             {}
func (q *fastQP) Disconnect()                          {}
func (q *fastQP) Stats() verbs.QPStats                 { return verbs.QPStats{} }
func (q *fastQP) Destroy() error                       { return nil }

func (q *fastQP) PostSend(wr []verbs.SendWR) (int, error) {
	for i := range wr {
		if wr[i].Op != verbs.OpSend {
			continue
		}
		s := wr[i].SGL[0]
		b := q.mem[s.LKey][s.Addr : s.Addr+uint64(s.Length)]
		if len(wr[i].SGL) > 1 {
			q.gather = append(q.gather[:0], b...)
			for _, s := range wr[i].SGL[1:] {
				q.gather = append(q.gather, q.mem[s.LKey][s.Addr:s.Addr+uint64(s.Length)]...)
			}
			b = q.gather
		}
		q.sends = append(q.sends, fastSend{wr[i].WRID, b})
	}
	return len(wr), nil
}

type fastHost struct {
	c      *Conn
	qp     *fastQP
	bufs   []*SendBuf
	free   []*msg.Msg
	got    int
	done   int
	local  int
	asm    []byte
	remote *fastHost
}

func (h *fastHost) Deliver(*Conn, *wire.Header, []byte) (Verdict, uint32) {
	h.got++
	return Accepted, 0
}
func (h *fastHost) Begin(_ *Conn, hd *wire.Header) ([]byte, any, Verdict) {
	return h.asm[:hd.Len], h, Accepted
}
func (h *fastHost) Commit(*Conn, *wire.Header, any) uint32 {
	h.got++
	return 0
}
func (h *fastHost) Bound(*Conn, *msg.Msg, uint32)              {}
func (h *fastHost) Abort(*Conn, any)                           {}
func (h *fastHost) Internal(*Conn, wire.InternalType, []byte)  {}
func (h *fastHost) CanPost(*Conn, *msg.Msg) bool               { return true }
func (h *fastHost) OpLocal(*Conn, *msg.Msg)                    { h.local++ }
func (h *fastHost) RunAtomic(*Conn, *wire.Atomic, bool) uint64 { return 5 }
func (h *fastHost) AtomicResult(*Conn, *msg.Msg, uint64)       {}
func (h *fastHost) AimAtomic(*Conn, *wire.Header, *wire.Atomic) wire.AtomicStatus {
	return wire.AtomicDone
}
func (h *fastHost) OpPlaced(*Conn, *msg.Msg)                       {}
func (h *fastHost) HasWaiting(*Conn) bool                          { return false }
func (h *fastHost) MsgDone(_ *Conn, m *msg.Msg, _ msg.Outcome)     { h.done++; h.free = append(h.free, m) }
func (h *fastHost) Instance(*Conn, uint64) bool                    { return true }
func (h *fastHost) PeerUp(*Conn, bool)                             {}
func (h *fastHost) PeerDown(*Conn, error)                          {}
func (h *fastHost) Congestion(*Conn, *cong.Map)                    {}
func (h *fastHost) NewQP(*Conn, verbs.RequestID) (verbs.QP, error) { return h.qp, nil }
func (h *fastHost) CloseQP(*Conn, verbs.QP)                        {}
func (h *fastHost) Dial(*Conn, verbs.QP, []byte) error             { return nil }
func (h *fastHost) Reject(verbs.RequestID, []byte)                 {}
func (h *fastHost) Trace(*Conn, string, error)                     {}
func (h *fastHost) Accept(*Conn, verbs.RequestID, verbs.QP, []byte) error {
	return nil
}
func (h *fastHost) CtlBuf() *SendBuf      { return h.SendBuf() }
func (h *fastHost) PutCtlBuf(b *SendBuf)  { h.PutSendBuf(b) }
func (h *fastHost) PutSendBuf(b *SendBuf) { h.bufs = append(h.bufs, b) }
func (h *fastHost) SendBuf() *SendBuf {
	b := h.bufs[len(h.bufs)-1]
	h.bufs = h.bufs[:len(h.bufs)-1]
	return b
}

// fastPair returns two Conns that are ready.
func fastPair(tb testing.TB) (a, b *fastHost) {
	mk := func(i uint32) *fastHost {
		h := &fastHost{qp: &fastQP{num: i, mem: make(map[uint32][]byte)}, asm: make([]byte, 1<<20)}
		for k := range uint32(64) {
			mem := make([]byte, 32<<10)
			h.qp.mem[k] = mem
			h.bufs = append(h.bufs, &SendBuf{Mem: mem, LKey: k})
		}
		return h
	}
	a, b = mk(1), mk(2)
	a.remote, b.remote = b, a
	ca, cb := testConfig(addrA, addrB, 1), testConfig(addrB, addrA, 2)
	a.c, b.c = New(ca, a), New(cb, b)
	a.c.Send(&msg.Msg{SPort: 1, DPort: 2})
	a.c.Flush(1)
	b.c.HandleRequest(1, 1, 0, a.c.private())
	b.c.HandleCM(1, &verbs.CMEvent{Type: verbs.CMEstablished, QP: b.qp})
	a.c.HandleCM(1, &verbs.CMEvent{Type: verbs.CMEstablished, QP: a.qp, Private: b.c.private()})
	a.turn(2)
	b.c.Tick(b.c.NextTimeout())
	a.turn(3)
	if a.done != 1 || !a.c.Ready() || !b.c.Ready() || b.got != 1 {
		tb.Fatalf("not up: %v %v %+v", a.c.State(), b.c.State(), a.c.Info())
	}
	return a, b
}

// turn moves everything until both sides are idle.
func (h *fastHost) turn(now int64) {
	for moved := true; moved; {
		moved = h.move(now)
		moved = h.remote.move(now) || moved
	}
}

func (h *fastHost) move(now int64) bool {
	if h.c.NeedFlush() {
		h.c.Flush(now)
	}
	if len(h.qp.sends) == 0 {
		return false
	}
	wc := verbs.WC{}
	for _, s := range h.qp.sends {
		wc = verbs.WC{QPNum: h.remote.qp.num, ByteLen: uint32(len(s.buf))}
		h.remote.c.HandleRecv(now, &wc, s.buf)
		wc = verbs.WC{WRID: s.wrid, QPNum: h.qp.num}
		h.c.HandleSend(now, &wc)
	}
	h.qp.sends = h.qp.sends[:0]
	return true
}

func (h *fastHost) messages(n, size int) {
	for range n {
		h.free = append(h.free, &msg.Msg{SPort: 100, DPort: 200, SrcInc: 1, Data: make([]byte, size)})
	}
}

// sendAll passes every free message to the Conn.
func (h *fastHost) sendAll() {
	for len(h.free) > 0 {
		m := h.free[len(h.free)-1]
		h.free = h.free[:len(h.free)-1]
		h.c.Send(m)
	}
}

// BenchmarkMessages64 is the whole protocol cost of a 64-byte message, both
// ends together: queue, encode, decode, deliver, ack, retire.
func BenchmarkMessages64(b *testing.B) { benchMessages(b, 64, 128) }

// BenchmarkRoundTrip64 is one message at a time: nothing is shared.
func BenchmarkRoundTrip64(b *testing.B) { benchMessages(b, 64, 1) }

func benchMessages(b *testing.B, size, batch int) {
	h, p := fastPair(b)
	h.free = nil
	h.messages(batch, size)
	for _, m := range h.free {
		m.AckNow = true
	}
	now := int64(10e6)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		h.sendAll()
		h.turn(now)
		now += 1000
	}
	b.StopTimer()
	if len(h.free) != batch || p.got < b.N {
		b.Fatalf("%d of %d messages back, %d delivered", len(h.free), batch, p.got)
	}
}

// BenchmarkRuns64 is the same with runs of 64 datagrams, for one datagram.
func BenchmarkRuns64(b *testing.B) {
	const batch, size = 8, 64
	h, p := fastPair(b)
	h.free = nil
	h.messages(batch, 0)
	for _, m := range h.free {
		m.Data, m.Run, m.Payload = runs.Of(slices.Repeat([]string{strings.Repeat("x", 64)}, size)...), size, size*64
	}
	now, before := int64(10e6), p.got
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch * size {
		h.sendAll()
		h.turn(now)
		now += 1000
	}
	b.StopTimer()
	if len(h.free) != batch || (p.got-before)*size < b.N {
		b.Fatalf("%d of %d runs back, %d delivered", len(h.free), batch, p.got)
	}
}

func TestNoAllocations(t *testing.T) {
	h, p := fastPair(t)
	h.free = nil
	h.messages(200, 64)
	big := make([]byte, 100<<10)
	h.qp.mem[1000] = big
	h.free = append(h.free, &msg.Msg{SPort: 1, DPort: 2, SrcInc: 1, Data: big, LKey: 1000})
	h.free = append(h.free, &msg.Msg{SPort: 1, DPort: 2, SrcInc: 1, Data: make([]byte, 100<<10)})
	for i := range 100 {
		op := &rdmaop.Op{Kind: abi.OpWrite, Cookie: 7, Len: 64, Segs: []rdmaop.Seg{{LKey: 1, Len: 64}}}
		if i%2 == 0 {
			op.Kind = abi.OpRead
		}
		h.free = append(h.free, &msg.Msg{SPort: 1, DPort: 2, SrcInc: 1, Data: make([]byte, 16), Op: op})
	}
	for _, m := range h.free[:100] {
		m.Data, m.Run = runs.Of(runs.Letters(20)...), 20
	}
	n := len(h.free)
	now := int64(10e6)
	before := p.got
	allocs := testing.AllocsPerRun(50, func() {
		h.sendAll()
		h.turn(now)
		now += 1000
		if t := h.c.NextTimeout(); t != 0 {
			h.c.Tick(t)
		}
		if t := p.c.NextTimeout(); t != 0 {
			now = max(now, t)
			p.c.Tick(now)
		}
		h.turn(now)
	})
	if len(h.free) != n || p.got-before != 51*n {
		t.Fatalf("%d of %d messages back, %d delivered", len(h.free), n, p.got-before)
	}
	if allocs != 0 {
		t.Errorf("%v allocations for %d messages", allocs, n)
	}
}
