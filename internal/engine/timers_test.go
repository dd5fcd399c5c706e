package engine

import (
	"math/rand/v2"
	"testing"
)

// The heap against the plain rule: a peer is due at the earliest time it was
// armed for since it was last due or dropped, and all come in order of time.
func TestTimersModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var h timers
		peers := make([]*peer, 30)
		want := map[*peer]int64{}
		for i := range peers {
			peers[i] = &peer{}
		}
		for now := int64(1); now < 2000; now++ {
			p := peers[rng.IntN(len(peers))]
			switch at := now + int64(rng.IntN(200)); rng.IntN(6) {
			case 0:
				h.drop(p)
				delete(want, p)
			case 1:
				h.arm(p, 0)
			default:
				h.arm(p, at)
				if w, ok := want[p]; !ok || at < w {
					want[p] = at
				}
			}
			last := int64(0)
			for _, p := range h.due(nil, now) {
				w, ok := want[p]
				if !ok || w > now || w < last || p.timerAt != 0 {
					t.Fatalf("seed %d, time %d: a peer is due that is wanted at %d (%v), after one at %d", seed, now, w, ok, last)
				}
				last = w
				delete(want, p)
			}
			if len(h) != len(want) {
				t.Fatalf("seed %d, time %d: %d armed, want %d", seed, now, len(h), len(want))
			}
			for p, at := range want {
				if at <= now || p.timerAt != at || h[p.timerPos] != p {
					t.Fatalf("seed %d, time %d: a peer wanted at %d has %d", seed, now, at, p.timerAt)
				}
			}
		}
	}
}
