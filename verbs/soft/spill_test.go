package soft

import (
	"bytes"
	"crypto/fips140"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// spilling connects two hosts n times. The thread of one of them, which is the test, has only what its owner has no
// time for. It returns a's queue pairs, too.
func spilling(t *testing.T, how guarded, n int, at func(a, b *host) *host) (a, b *host, qs []verbs.QP) {
	as := attrs()
	a, b = guardedPair(t, how, as, Options{})
	if as.CRC = verbs.CRCOff; how == summed {
		as.CRC = verbs.CRCOn
	}
	for qs = append(qs, a.qp); len(qs) < n; qs = append(qs, a.qp) {
		link(t, a, b, as, as)
	}
	h := at(a, b)
	h.threadByHand()
	h.dev.threads.spill = &spill{}
	fill(a.mem, 3)
	return a, b, qs
}

func sender(a, _ *host) *host   { return a }
func receiver(_, b *host) *host { return b }

// keepWriting has a keep so many writes of size bytes under way by each of qs, until n of each are complete and b has
// them, and returns how many bytes h's thread moved for each.
func (h *host) keepWriting(a, b *host, qs []verbs.QP, size, under, n int) []int {
	h.t.Helper()
	aside := make([]int, len(qs))
	posted, complete := make([]int, len(qs)), make([]int, len(qs))
	by := map[*qp]int{} // of h
	for i, q := range qs {
		by[h.other(a, q)] = i
	}
	for missing, end := n*len(qs), b.written()+uint64(n*len(qs)*size); missing > 0 || b.written() < end; {
		for i, q := range qs {
			for ; posted[i] < n && posted[i]-complete[i] < under; posted[i]++ {
				a.qp = q
				a.send(verbs.SendWR{WRID: uint64(i), Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.sge(0, size), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
			}
		}
		run(h.t, "completions", func() bool {
			return len(a.wc) > 0 || len(h.dev.threads.work) > 0 || missing == 0 && b.written() == end
		}, a, b)
		for _, wc := range a.wc {
			complete[wc.WRID]++
			missing--
		}
		a.wc = a.wc[:0]
		if len(h.dev.threads.work) > 0 {
			j := <-h.dev.threads.work
			i := by[j.q]
			h.done(j)
			aside[i] += j.n
		}
	}
	return aside
}

// written is how many bytes writes have placed at h.
func (h *host) written() (n uint64) {
	for _, q := range h.dev.qps {
		if q != nil {
			n += q.Stats().Written
		}
	}
	return n
}

// other returns h's end of the queue pair q of a.
func (h *host) other(a *host, q verbs.QP) *qp {
	of := q.(*qp)
	for _, x := range h.dev.qps {
		if x != nil && (x == of || x.remote == of.local && h != a) {
			return x
		}
	}
	h.t.Fatal("no such queue pair")
	return nil
}

// TestSpill: a thread has a share of each of several queue pairs, and nothing of one by itself.
func TestSpill(t *testing.T) {
	for how := range sealed + 1 {
		if how == sealed && fips140.Enabled() {
			continue
		}
		for name, at := range map[string]func(a, b *host) *host{"writes": sender, "reads": receiver} {
			for _, tc := range []struct{ qps, size, under int }{{2, 1 << 20, 4}, {2, 1 << 20, 1}, {5, 1 << 20, 2}, {3, 192 << 10, 2}} {
				t.Run(fmt.Sprintf("%v/%s/%d of %d KiB, %d", how, name, tc.qps, tc.size>>10, tc.under), func(t *testing.T) {
					a, b, qs := spilling(t, how, tc.qps, at)
					h, n := at(a, b), 24<<20/tc.size
					aside := h.keepWriting(a, b, qs, tc.size, tc.under, n)
					least, most := slices.Min(aside), slices.Max(aside)
					t.Logf("by the thread, of %d: %d", n*tc.size, aside)
					if tc.qps == 2 && (least < n*tc.size/8 || most > 2*least) || most == 0 {
						t.Errorf("of %d bytes each the thread moved %d", n*tc.size, aside)
					}
					alone := h.keepWriting(a, b, qs[:1], tc.size, tc.under, n)[0]
					if alone > 3*roundBytes {
						t.Errorf("one by itself: the thread moved %d bytes", alone)
					}
					if again := h.keepWriting(a, b, qs[:1], tc.size, tc.under, n)[0]; again > 0 {
						t.Errorf("one by itself for longer: the thread moved %d bytes", again)
					}
				})
			}
		}
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

// TestNotFollowed: a thread that does not follow messages costs no calls of the kernel.
func TestNotFollowed(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("crypto/tls reads")
	}
	for name, op := range map[string]verbs.Opcode{"messages": verbs.OpSend, "a tap": verbs.OpRDMAWrite} {
		a, b := securePair(t, attrs(), func(i int, o *Options) {
			if i == 1 && op == verbs.OpRDMAWrite {
				o.Tap = &recorder{}
			}
		})
		b.threadByHand()
		const n, size = 64, 32 << 10
		for range n {
			wr := verbs.SendWR{Op: op, Flags: verbs.SendSignaled, SGL: a.sge(0, size)}
			if op == verbs.OpSend {
				b.recv(verbs.RecvWR{SGL: b.sge(0, size)})
			} else {
				wr.RKey, wr.RemoteAddr = b.mr.RKey(), testIOVA
			}
			a.send(wr)
		}
		a.take(n, b)
		run(t, "the payload", func() bool { return b.dev.Stats().BytesIn > n*size }, a, b)
		if calls := b.dev.Stats().CallsIn; calls > 2*n {
			t.Errorf("%s: %d calls for %d messages of %d bytes", name, calls, n, size)
		}
	}
}
