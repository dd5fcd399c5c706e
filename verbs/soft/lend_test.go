package soft

import (
	"runtime"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// trimAll is the device's timer, run twice: what was used before the first time
// was not used between them.
func (h *host) trimAll() {
	h.dev.trim()
	h.dev.trim()
}

// TestIdleMemory: a connected queue pair of the size the daemon makes them
// costs a few KiB when it is idle, also when it was busy before.
func TestIdleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's memory counts")
	}
	const (
		pairs = 32
		each  = 4 << 10 // bytes, with what the runtime needs for a connection
	)
	at := attrs()
	at.Access |= verbs.AccessRemoteAtomic
	at.Cap = verbs.QPCap{MaxSendWR: 1024, MaxSendSGE: 16, MaxRecvSGE: 1, ReadDepth: 32}
	a, b := newHost(t, Options{}), newHost(t, Options{})
	of := map[*host]verbs.QPInitAttr{}
	for _, h := range []*host{a, b} {
		srq, err := h.pd.CreateSRQ(512, 1)
		if err != nil {
			t.Fatal(err)
		}
		at.SRQ = srq
		of[h] = at
	}
	qps := make([][2]verbs.QP, 0, pairs)
	heap := func() uint64 {
		for _, h := range []*host{a, b} {
			h.trimAll()
			h.wc, h.ev = nil, nil
			if !h.dev.trimmed() {
				t.Fatal("something was not trimmed")
			}
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	link(t, a, b, of[a], of[b]) // what the devices need at all
	before := heap()
	for range pairs {
		link(t, a, b, of[a], of[b])
		qps = append(qps, [2]verbs.QP{a.qp, b.qp})
	}
	quiet := heap()
	grown := 0
	for _, pair := range qps {
		a.qp, b.qp = pair[0], pair[1]
		for i := range 200 {
			if _, err := of[b].SRQ.PostRecv([]verbs.RecvWR{{SGL: b.sge(0, 64)}}); err != nil {
				t.Fatal(err)
			}
			a.send(verbs.SendWR{Op: verbs.OpSend, SGL: a.sge(0, 64)},
				verbs.SendWR{Op: verbs.OpRDMARead, SGL: a.sge(i, 1), RemoteAddr: testIOVA, RKey: b.mr.RKey(), Flags: verbs.SendSignaled})
		}
		a.take(200, b)
		b.take(200, a)
		if q := a.qp.(*qp); len(q.sq.w) > firstWRs && len(q.sq.waits.w) > firstWaits {
			grown++
		}
	}
	if grown != pairs {
		t.Errorf("the queues of %d of %d grew", grown, pairs)
	}
	after := heap()
	for _, x := range []struct {
		what string
		heap uint64
	}{{"connected", quiet}, {"idle again", after}} {
		// Both ends are in this process.
		n := (int64(x.heap) - int64(before)) / (2 * pairs)
		t.Logf("%s: %d bytes a queue pair", x.what, n)
		if n > each {
			t.Errorf("%s: %d bytes a queue pair, want %d at most", x.what, n, each)
		}
	}
	runtime.KeepAlive(qps)
}

// TestManySpeakAtOnce: many queue pairs with a word each take a small stage
// each, and when they have been idle none.
func TestManySpeakAtOnce(t *testing.T) {
	const pairs = 16
	a, b := newHost(t, Options{}), newHost(t, Options{})
	var qps [][2]verbs.QP
	for range pairs {
		link(t, a, b, attrs(), attrs())
		qps = append(qps, [2]verbs.QP{a.qp, b.qp})
	}
	a.trimAll()
	for _, p := range qps {
		a.qp, b.qp = p[0], p[1]
		b.recv(verbs.RecvWR{SGL: b.sge(0, 64)})
		a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, 64)})
	}
	for _, p := range qps {
		if q := p[0].(*qp); len(q.out.stage) != smallStage || q.out.first != nil {
			t.Fatalf("a word holds a stage of %d bytes", len(q.out.stage))
		}
	}
	a.take(pairs, b)
	b.take(pairs, a)
	if n := len(a.dev.lent.small.free); n != pairs {
		t.Errorf("%d small stages came back, want %d", n, pairs)
	}
	a.dev.trim()
	a.dev.trim()
	if !a.dev.trimmed() {
		t.Errorf("idle, and there are %d small and %d large stages, %d lists", len(a.dev.lent.small.free), len(a.dev.lent.large.free), len(a.dev.lent.segs.free))
	}
}

// TestOutputGrows: output that does not fit a small stage goes on in a large
// one, in order.
func TestOutputGrows(t *testing.T) {
	a, b := pair(t, attrs(), attrs())
	sizes := []int{1, 3000, 2000, 8000, 1, 100 << 10, 5}
	total := 0
	for i, n := range sizes {
		fill(a.mem[total:total+n], i)
		b.recv(verbs.RecvWR{WRID: uint64(i), SGL: b.sge(total, n)})
		a.send(verbs.SendWR{WRID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(total, n)})
		total += n
	}
	if q := a.qp.(*qp); len(q.out.first) != smallStage || len(q.out.stage) != stageSize {
		t.Errorf("stages of %d and %d bytes", len(q.out.first), len(q.out.stage))
	}
	a.take(len(sizes), b)
	for i, wc := range b.take(len(sizes), a) {
		if wc.WRID != uint64(i) || int(wc.ByteLen) != sizes[i] {
			t.Errorf("message %d: %+v", i, wc)
		}
	}
	for i := range total {
		if a.mem[i] != b.mem[i] {
			t.Fatalf("byte %d of %d differs", i, total)
		}
	}
}

// TestStoppedMidFrame: a peer that stops in the middle of a frame has what it
// sent kept, not a stage; the frame is whole when it goes on.
func TestStoppedMidFrame(t *testing.T) {
	for _, n := range []int{300, 20 << 10} { // fits a small stage; does not
		h := newHost(t, Options{})
		p := newPuppet(t, h, attrs())
		h.recv(verbs.RecvWR{SGL: h.sge(0, 32<<10)})
		want := make([]byte, 30<<10)
		fill(want, 9)
		f := sendFrame(1, 0, true, want)
		p.write(f[:n])
		q := h.qp.(*qp)
		p.until("the beginning", func() bool { return q.rx.w-q.rx.r == n })
		h.trimAll()
		if len(q.rx.stage) > max(n, smallStage) {
			t.Errorf("%d bytes of a frame hold a stage of %d", n, len(q.rx.stage))
		}
		p.write(f[n:])
		p.until("the message", func() bool { h.collect(); return len(h.wc) > 0 })
		if wc := h.wc[0]; wc.Status != verbs.WCSuccess || int(wc.ByteLen) != len(want) || string(h.mem[:len(want)]) != string(want) {
			t.Errorf("%+v", wc)
		}
	}
}

// TestTrimByTimer: nobody has to call trim.
func TestTrimByTimer(t *testing.T) {
	a, b := pair(t, attrs(), attrs())
	b.recv(verbs.RecvWR{SGL: b.sge(0, 64)})
	a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, 64)})
	a.take(1, b)
	if a.dev.trimmed() || a.dev.trimAt == 0 {
		t.Fatal("nothing to trim")
	}
	run(t, "the trim", func() bool { return a.dev.trimmed() && a.dev.trimAt == 0 }, a, b)
}

// TestSendQueueGrows: outstanding requests keep their order, SGEs, inline data
// and operands while the queue grows under them.
func TestSendQueueGrows(t *testing.T) {
	a, b := pair(t, attrs(), attrs())
	const n = 100
	for i := range n {
		b.recv(verbs.RecvWR{WRID: uint64(i), SGL: b.sge(8*i, 8)})
		a.mem[8*i] = byte(i)
		wr := verbs.SendWR{WRID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(8*i, 8)}
		if i%3 == 0 {
			wr.SGL, wr.Inline, wr.Flags = nil, []byte{byte(i), 0, 0, 0, 0, 0, 0, 0}, wr.Flags|verbs.SendInline
		}
		if q := a.qp.(*qp); i == 0 {
			q.state = unheard // nothing leaves, so nothing is given back
		}
		a.send(wr)
	}
	q := a.qp.(*qp)
	if len(q.sq.w) != 128 {
		t.Errorf("%d slots", len(q.sq.w))
	}
	q.state = open
	q.dev.markDirty(q)
	for i, wc := range a.take(n, b) {
		if wc.WRID != uint64(i) {
			t.Fatalf("completion %d is of %d", i, wc.WRID)
		}
	}
	b.take(n, a)
	for i := range n {
		if b.mem[8*i] != byte(i) {
			t.Fatalf("message %d has %d", i, b.mem[8*i])
		}
	}
	a.trimAll()
	if q.sq.w != nil {
		t.Errorf("%d slots of an idle queue", len(q.sq.w))
	}
}
