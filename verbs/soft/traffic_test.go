package soft

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/rdsd/rdsd/verbs"
)

// TestBothDirections: random traffic both ways at once, READs included, however it is guarded, by owners
// and by threads; every byte is checked.
func TestBothDirections(t *testing.T) {
	for how := range sealed + 1 {
		for _, threads := range []int{0, 2} {
			t.Run(fmt.Sprintf("%v/threads%d", how, threads), func(t *testing.T) { bothDirections(t, how, threads) })
		}
	}
}

func bothDirections(t *testing.T, how guarded, threads int) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SOFT_SEED"); s != "" {
		fmt.Sscan(s, &seed)
	}
	t.Logf("SOFT_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	a, b := guardedPair(t, how, attrs(), Options{Threads: threads})
	type op struct {
		wr       verbs.SendWR
		src, dst []byte
	}
	hosts := [2]*host{a, b}
	// Each host's memory: source area, sink area of its READs, area the
	// peer writes to, area receives land in.
	const area = memSize / 4
	for i, h := range hosts {
		fill(h.mem[:area], i)
		if th := h.dev.threads; th != nil {
			th.late = math.MaxInt64 // however late they are
		}
		for j := range 100 {
			h.recv(verbs.RecvWR{WRID: uint64(j), SGL: h.sge(3*area, area)})
		}
	}
	for round := range 60 {
		var ops [2][]op
		for i, h := range hosts {
			peer := hosts[1-i]
			n := 1 + rng.IntN(6)
			for range n {
				size := 1 + rng.IntN(1<<(4+rng.IntN(17)))
				from, to := rng.IntN(area-size), rng.IntN(area-size)
				o := op{wr: verbs.SendWR{WRID: uint64(round), RKey: peer.mr.RKey(), Flags: verbs.SendFlags(rng.IntN(2)) * verbs.SendFence}}
				switch rng.IntN(3) {
				case 0:
					o.wr.Op = verbs.OpRDMARead
					o.wr.RemoteAddr = testIOVA + uint64(from)
					o.wr.SGL = h.sge(area+to, size)
					o.src, o.dst = peer.mem[from:from+size], h.mem[area+to:area+to+size]
				case 1:
					o.wr.Op = verbs.OpRDMAWrite
					o.wr.RemoteAddr = testIOVA + uint64(2*area+to)
					o.wr.SGL = h.sge(from, size)
					o.src, o.dst = h.mem[from:from+size], peer.mem[2*area+to:2*area+to+size]
				case 2:
					o.wr.Op = verbs.OpSend
					o.wr.SGL = h.sge(from, size)
				}
				ops[i] = append(ops[i], o)
			}
			ops[i] = append(ops[i], op{wr: verbs.SendWR{WRID: 1000, Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendFence}})
		}
		want := [2]int{1, 1} // the last SEND's completion
		for i, h := range hosts {
			for _, o := range ops[i] {
				h.send(o.wr)
				if o.wr.Op == verbs.OpSend {
					want[1-i]++
				}
			}
		}
		held := hosts[rng.IntN(2)]
		held.qp.(*qp).Hold(true)
		a.dev.Progress()
		b.dev.Progress()
		a.dev.trim()
		held.qp.(*qp).Hold(false)
		run(t, "the round", func() bool { return len(a.wc) >= want[0] && len(b.wc) >= want[1] }, a, b)
		for i, h := range hosts {
			if len(h.wc) != want[i] {
				t.Fatalf("%d completions, want %d: %+v", len(h.wc), want[i], h.wc)
			}
			for _, wc := range h.wc {
				if wc.Status != 0 {
					t.Fatalf("%+v", wc)
				}
				if wc.Op == verbs.WCRecv {
					h.recv(verbs.RecvWR{SGL: h.sge(3*area, area)})
				}
			}
			h.wc = h.wc[:0]
			// Sources never change; of the targets only the last is sure
			// not to have been overwritten by a later operation.
			for k := len(ops[i]) - 1; k >= 0; k-- {
				if o := ops[i][k]; o.dst != nil {
					if !bytes.Equal(o.src, o.dst) {
						t.Fatalf("round %d: op %d of %d bytes: data differ", round, o.wr.Op, len(o.src))
					}
					break
				}
			}
		}
	}
	for _, h := range hosts {
		q := h.qp.(*qp)
		q.ToError()
		run(t, "no thread has anything", func() bool { return q.state == failed }, h)
		if n := h.mr.(*mr).used; n != 0 || q.rx.stage != nil || q.out.segs != nil || q.tls != nil && (q.tls.sealed != nil || q.tls.rest != nil) {
			t.Errorf("memory is kept, a region has %d uses", n)
		}
		h.distinct()
	}
}

// distinct checks that no memory was given back twice.
func (h *host) distinct() {
	h.t.Helper()
	seen := map[*byte]bool{}
	l := &h.dev.lent
	for _, b := range slices.Concat(l.small.free, l.large.free, l.rests.free, l.batches.free) {
		at := unsafe.SliceData(b)
		if seen[at] {
			h.t.Error("memory was given back twice")
		}
		seen[at] = true
	}
}
