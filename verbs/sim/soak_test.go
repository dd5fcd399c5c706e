package sim_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

const (
	slot      = 64 // bytes per message, WRITE target and READ sink
	slots     = 64
	sendArea  = 0
	recvArea  = slots * slot
	writeArea = 2 * slots * slot
	readArea  = 3 * slots * slot
)

// soaker is an end under random load. Message k is a WRITE of k to slot k and
// the SEND of k behind it; every fifth is a READ instead.
type soaker struct {
	*end
	rng        *rand.Rand
	peer       *soaker
	next       uint64 // message to post
	expect     uint64 // message to arrive
	doneSend   uint64
	doneRecv   uint64
	nextRecv   uint64
	failed     bool // a completion with an error has been seen
	polled     int  // of sends, recvs
	polledRecv int
	reads      [slots]bool // message k%slots carried a READ
	last       uint64      // WRID posted last, +1
	poisoned   bool        // drained, and the memory filled with poison
	total      int         // messages over all connections
}

// TestSoak runs seeds of two ends under all faults and checks that a live
// connection delivers everything once and in order, that WRITEs are there
// before the SEND behind them, that each request completes at most once, in
// order, and that nothing touches buffers afterwards.
func TestSoak(t *testing.T) {
	for seed := range uint64(16) {
		first, msgs := soak(t, seed)
		if second, _ := soak(t, seed); first != second {
			t.Fatalf("seed %d: traces %#x and %#x differ", seed, first, second)
		}
		if other, _ := soak(t, seed+1000); other == first {
			t.Fatalf("seeds %d and %d: same trace %#x", seed, seed+1000, first)
		}
		if msgs < 500 {
			t.Errorf("seed %d: only %d messages arrived", seed, msgs)
		}
		if t.Failed() {
			t.Fatalf("replay: go test ./verbs/sim -run TestSoak (seed %d)", seed)
		}
	}
}

func soak(t *testing.T, seed uint64) (trace uint64, msgs int) {
	t.Helper()
	net := sim.NewNetwork(seed)
	ack := verbs.AckMode(seed % 2)
	a, b := &soaker{end: newEnd(t, net, hostA, ack), rng: net.Rand(1)}, &soaker{end: newEnd(t, net, hostB, ack), rng: net.Rand(2)}
	a.peer, b.peer = b, a
	net.Faults.HalfOpen, net.Faults.PostFail, net.Faults.Lost, net.Faults.Refuse = 200_000, 1000, 50_000, 50_000
	net.Faults.BreakAll(200)
	for _, k := range []sim.PointKind{sim.ConnectRequest, sim.ConnectReply, sim.ConnectReady} {
		net.Faults.Break[k] = 50_000
	}
	for range 60 {
		for _, e := range []*soaker{a, b} {
			e.qp.Destroy()
			e.newQP()
			e.reset()
		}
		a.dial(b.end)
		for steps := 0; steps < 4000 && net.Step(); steps++ {
			a.turn()
			b.turn()
			if a.failed && b.failed {
				break
			}
		}
		a.qp.ToError()
		b.qp.ToError()
		for net.Step() {
			a.turn()
			b.turn()
		}
		a.finish()
		b.finish()
	}
	return net.TraceHash(), a.total + b.total
}

func (e *soaker) reset() {
	e.next, e.expect, e.doneSend, e.doneRecv, e.nextRecv, e.failed = 0, 0, 0, 0, 0, false
	e.sends, e.recvs, e.events, e.polled, e.polledRecv, e.last, e.poisoned = nil, nil, nil, 0, 0, 0, false
	clear(e.mem)
}

func (e *soaker) turn() {
	e.poll()
	if req := e.has(verbs.CMConnectRequest); req != nil {
		req.Type = 0
		var err error
		if e.rng.IntN(8) == 0 {
			err = e.dev.Reject(req.Req, nil)
		} else if e.qp.State() == verbs.QPInit {
			err = e.dev.Accept(req.Req, e.qp, nil)
		}
		if err != nil {
			e.t.Errorf("answer: %v", err)
		}
	}
	e.checkSends()
	e.checkRecvs()
	if n := len(e.sends); e.qp.State() == verbs.QPErr && !e.poisoned && e.doneRecv == e.nextRecv && e.nextRecv > 0 &&
		n > 0 && e.sends[n-1].WRID+1 == e.last && e.sends[n-1].Status != verbs.WCSuccess {
		e.poisoned = true // drained: the memory is ours
		copy(e.mem, bytes.Repeat([]byte{0x99}, len(e.mem)))
	}
	if e.failed || e.qp.State() != verbs.QPRTS {
		return
	}
	for e.nextRecv-e.doneRecv < slots/2 && e.rng.IntN(4) > 0 {
		e.recv(e.nextRecv, recvArea+int(e.nextRecv%slots)*slot, slot)
		e.nextRecv++
	}
	for e.next-e.doneSend < 16 && e.rng.IntN(3) > 0 && e.postOne() {
	}
}

// postOne posts message next; false when the queue refused it.
func (e *soaker) postOne() bool {
	k, off := e.next, int(e.next%slots)*slot
	buf := e.mem[sendArea+off:][:slot]
	fill(buf, k)
	wrs := []verbs.SendWR{
		{WRID: k, Op: verbs.OpRDMAWrite, SGL: e.sge(sendArea+off, slot), RKey: e.peer.mr.RKey(), RemoteAddr: iova + uint64(writeArea+off)},
		{WRID: k, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: e.sge(sendArea+off, 8)},
	}
	e.reads[k%slots] = e.rng.IntN(5) == 0
	if e.reads[k%slots] {
		// The receive of a message with a READ is longer by one byte.
		wrs[1].SGL[0].Length++
		wrs[0] = verbs.SendWR{WRID: k, Op: verbs.OpRDMARead, SGL: e.sge(readArea+off, slot), RKey: e.peer.mr.RKey(), RemoteAddr: iova + uint64(sendArea+off)}
		wrs[1].Flags |= verbs.SendFence
	}
	n, err := e.qp.PostSend(wrs)
	if n > 0 {
		e.last = k + 1
	}
	if n != len(wrs) {
		if n == 1 {
			e.failed = true // half a message: the owner gives up
			e.qp.ToError()
		}
		return err == nil
	}
	e.next++
	return true
}

func fill(b []byte, k uint64) {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], k)
	}
}

// filled checks that a slot holds one number throughout.
func filled(b []byte) (k uint64, ok bool) {
	k = binary.LittleEndian.Uint64(b)
	for i := 8; i < len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != k {
			return k, false
		}
	}
	return k, true
}

func (e *soaker) checkSends() {
	for ; e.polled < len(e.sends); e.polled++ {
		wc := e.sends[e.polled]
		if wc.Status != verbs.WCSuccess {
			e.failed = true
			continue
		}
		if e.failed && wc.WRID < e.doneSend || wc.WRID != e.doneSend {
			e.t.Errorf("send %d completed after %d", wc.WRID, e.doneSend)
		}
		e.doneSend = wc.WRID + 1
		if e.reads[wc.WRID%slots] {
			// The peer posts in order: its slot held this number or one of the
			// same slot, whole.
			k, ok := filled(e.mem[readArea+int(wc.WRID%slots)*slot:][:slot])
			if !ok || k != 0 && k%slots != wc.WRID%slots {
				e.t.Errorf("READ %d brought %d, whole %v", wc.WRID, k, ok)
			}
		}
	}
}

func (e *soaker) checkRecvs() {
	for ; e.polledRecv < len(e.recvs); e.polledRecv++ {
		wc := e.recvs[e.polledRecv]
		if wc.WRID != e.doneRecv {
			e.t.Errorf("receive %d completed after %d", wc.WRID, e.doneRecv)
		}
		e.doneRecv++
		if wc.Status != verbs.WCSuccess {
			e.failed = true
			continue
		}
		k := binary.LittleEndian.Uint64(e.mem[recvArea+int(wc.WRID%slots)*slot:])
		if k != e.expect {
			e.t.Errorf("message %d arrived, want %d", k, e.expect)
		}
		if w, ok := filled(e.mem[writeArea+int(k%slots)*slot:][:slot]); wc.ByteLen == 8 && (!ok || w != k) {
			e.t.Errorf("message %d arrived, its WRITE slot holds %d, whole %v", k, w, ok)
		}
		e.expect = k + 1
		e.total++
	}
}

// finish checks a drained end: all receives came back, memory is quiet.
func (e *soaker) finish() {
	if e.doneRecv != e.nextRecv {
		e.t.Errorf("%d receives posted, %d completed", e.nextRecv, e.doneRecv)
	}
	if n := len(e.sends); n > 0 && e.sends[n-1].Status == verbs.WCSuccess && e.doneSend != e.next {
		e.t.Errorf("%d messages posted, %d completed, no failure", e.next, e.doneSend)
	}
	if e.poisoned && bytes.Count(e.mem, []byte{0x99}) != len(e.mem) {
		e.t.Error("memory written after the flush")
	}
}

// TestStreams: arming a fault that never fires changes nothing else.
func TestStreams(t *testing.T) {
	trace := func(f sim.Faults) uint64 {
		net := sim.NewNetwork(42)
		net.Faults = f
		a, b := pair(t, net, verbs.AckLocal)
		for i := range 20 {
			b.recv(uint64(i), 0, 64)
			a.post(verbs.SendWR{WRID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, 64)})
			run(net, a, b)
		}
		return net.TraceHash()
	}
	plain := trace(sim.Faults{})
	armed := sim.Faults{PostFail: 1, Lost: 1, Refuse: 1, Unreachable: 1}
	armed.BreakAll(1)
	if got := trace(armed); got != plain {
		t.Errorf("trace %#x with idle faults, %#x without", got, plain)
	}
}

// TestAtOrder: events of one time run in the order they were made.
func TestAtOrder(t *testing.T) {
	net := sim.NewNetwork(1)
	got := ""
	for i, at := range []int64{30, 10, 20, 10, 30, -5} {
		net.At(at, func() { got += fmt.Sprint(i, "@", net.Now(), " ") })
	}
	if at, ok := net.NextEvent(); !ok || at != 0 {
		t.Errorf("NextEvent = %d, %v; want 0, true", at, ok)
	}
	for net.Step() {
	}
	if want := "5@0 1@10 3@10 2@20 0@30 4@30 "; got != want {
		t.Errorf("order %q, want %q", got, want)
	}
	if _, ok := net.NextEvent(); ok {
		t.Error("NextEvent after the last")
	}
}
