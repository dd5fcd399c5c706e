package soft

import (
	"bytes"
	"crypto/fips140"
	"math"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// spilling connects two hosts twice. The thread of one of them, which is the test, has only what its owner has no time for.
func spilling(t *testing.T, of func(a, b *host) *host) (a, b *host, first, second *qp) {
	a, b = newHost(t, Options{}), newHost(t, Options{})
	link(t, a, b, attrs(), attrs())
	h := of(a, b)
	first = h.qp.(*qp)
	other := a.qp
	link(t, a, b, attrs(), attrs())
	second = h.qp.(*qp)
	a.qp = other
	h.threadByHand()
	h.dev.threads.spill = true
	fill(a.mem, 3)
	return a, b, first, second
}

// drain drives a and b until n completions are there, and counts the jobs that h gives away meanwhile, by queue pair.
func (h *host) drain(a, b *host, n int) map[*qp]int {
	h.t.Helper()
	jobs := map[*qp]int{}
	for len(a.wc) < n {
		run(h.t, "completions", func() bool { return len(a.wc) >= n || len(h.dev.threads.work) > 0 }, a, b)
		if len(h.dev.threads.work) > 0 {
			j := <-h.dev.threads.work
			jobs[j.q]++
			h.done(j)
		}
	}
	a.take(n, b)
	return jobs
}

// writeOn has a write n bytes to b by q, which is one of a's.
func (h *host) writeOn(q verbs.QP, b *host, n int) {
	was := h.qp
	h.qp = q
	h.bulkWrite(b, n)
	h.qp = was
}

// TestSpill: what one queue pair moves is the owner's. Of two, a thread has one at a time, in turns, and the owner
// goes on with the other meanwhile.
func TestSpill(t *testing.T) {
	a, b, first, second := spilling(t, func(a, _ *host) *host { return a })
	a.writeOn(first, b, 2<<20)
	if jobs := a.drain(a, b, 1); len(jobs) > 0 {
		t.Errorf("one queue pair: jobs %v", jobs)
	}
	a.writeOn(second, b, 1<<20)
	a.writeOn(first, b, 1<<20)
	j := a.taken()
	if j.q != second || first.elsewhere() {
		t.Errorf("a thread has %p, not that which the owner did not move last: first %p, second %p", j.q, first, second)
	}
	a.take(1, b) // the owner's
	a.done(j)
	a.dev.Progress() // takes it back and goes on with its queue pair
	a.writeOn(first, b, 1<<20)
	if j = a.taken(); j.q != first {
		t.Error("it is not the other's turn")
	}
	a.take(1, b)
	a.done(j)
	for range 8 {
		a.writeOn(first, b, 1<<20)
		a.writeOn(second, b, 1<<20)
	}
	if jobs := a.drain(a, b, 17); jobs[first] < 2 || jobs[second] < 2 {
		t.Errorf("no turns: jobs %v", jobs)
	}
	run(t, "the payload", func() bool { return bytes.Equal(b.mem[:2<<20], a.mem[:2<<20]) }, a, b)
}

// TestSpillEnds: with the other queue pair at rest, or gone, the owner soon moves everything itself again.
func TestSpillEnds(t *testing.T) {
	a, b, first, second := spilling(t, func(a, _ *host) *host { return a })
	a.writeOn(second, b, bulk)
	a.drain(a, b, 1)
	a.writeOn(first, b, 3<<20)
	if jobs := a.drain(a, b, 1); jobs[first] != 1 {
		t.Errorf("beside one at rest: %d jobs", jobs[first])
	}
	for range 2 { // the second time by the owner
		a.writeOn(second, b, bulk)
		a.drain(a, b, 1)
	}
	if err := second.Destroy(); err != nil {
		t.Fatal(err)
	}
	a.writeOn(first, b, 3<<20)
	if jobs := a.drain(a, b, 1); len(jobs) != 0 {
		t.Errorf("beside one that is gone: jobs %v", jobs)
	}
}

// TestSpillReads: so it is with input.
func TestSpillReads(t *testing.T) {
	a, b, first, second := spilling(t, func(_, b *host) *host { return b })
	out := a.qp
	a.writeOn(out, b, 2<<20)
	if jobs := b.drain(a, b, 1); len(jobs) > 0 {
		t.Errorf("one queue pair: jobs %v", jobs)
	}
	run(t, "the payload", func() bool { return first.Stats().Written == 2<<20 }, a, b)
	var other verbs.QP
	for _, q := range a.dev.qps {
		if q != nil && q != out {
			other = q
		}
	}
	for range 8 {
		a.writeOn(out, b, 1<<20)
		a.writeOn(other, b, 1<<20)
	}
	if jobs := b.drain(a, b, 16); jobs[first] < 2 || jobs[second] < 2 {
		t.Errorf("two queue pairs: jobs %v", jobs)
	}
}

// TestSpillStream: two queue pairs write and read at once, by owners and threads, however they are guarded.
func TestSpillStream(t *testing.T) {
	for how := range sealed + 1 {
		a, b := guardedPair(t, how, attrs(), Options{Threads: 2, Spill: true})
		qs := []verbs.QP{a.qp}
		link(t, a, b, attrs(), attrs())
		qs = append(qs, a.qp)
		for _, h := range []*host{a, b} {
			h.dev.threads.late = math.MaxInt64 // however late they are
		}
		const each = 1 << 20
		for round := range 6 {
			fill(a.mem[:2*each], round)
			clear(b.mem)
			n := 0
			for off := 0; off < each; {
				size := min([]int{1 << 18, 100, 40 << 10, 8, asideMin, 300 << 10}[n%6], each-off)
				for i, q := range qs {
					a.qp = q
					at := i*each + off
					a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.sge(at, size), RKey: b.mr.RKey(), RemoteAddr: testIOVA + uint64(at)})
				}
				n++
				off += size
			}
			for i, q := range qs {
				a.qp = q
				a.send(verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.sge((2+i)*each, each), RKey: b.mr.RKey(), RemoteAddr: testIOVA + uint64(i*each)})
			}
			for _, wc := range a.take(2*n+2, b) {
				if wc.Status != verbs.WCSuccess {
					t.Fatalf("round %d: %+v", round, wc)
				}
			}
			if !bytes.Equal(a.mem[:2*each], a.mem[2*each:]) {
				t.Fatalf("%v, round %d: what was written and read again differs", how, round)
			}
		}
		if n := a.dev.Threads().Calls + b.dev.Threads().Calls; (n == 0) != (how == sealed && fips140.Enabled()) {
			t.Errorf("%v: %d calls aside", how, n)
		}
	}
}
