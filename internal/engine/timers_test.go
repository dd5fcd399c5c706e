package engine

import (
	"math/rand/v2"
	"testing"
)

// TestTimersModel holds the heap against the plain rule: a peer is due at the earliest
// time it was wanted by since it was last due or dropped, and all come in order of time.
func TestTimersModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var d deadlines
		peers := make([]*peer, 30)
		want := map[*peer]int64{}
		for i := range peers {
			peers[i] = &peer{}
		}
		for now := int64(1); now < 2000; now++ {
			p := peers[rng.IntN(len(peers))]
			switch at := now + int64(rng.IntN(200)); rng.IntN(6) {
			case 0:
				d.peers.Drop(&p.timer)
				delete(want, p)
			case 1:
				d.peer(p, 0)
			default:
				d.peer(p, at)
				if w, ok := want[p]; !ok || at < w {
					want[p] = at
				}
			}
			last := int64(0)
			for p := d.peers.Due(now); p != nil; p = d.peers.Due(now) {
				w, ok := want[p]
				if !ok || w > now || w < last || p.timer.When() != 0 {
					t.Fatalf("seed %d, time %d: a peer is due that is wanted at %d (%v), after one at %d", seed, now, w, ok, last)
				}
				last = w
				delete(want, p)
			}
			if d.peers.Len() != len(want) {
				t.Fatalf("seed %d, time %d: %d armed, want %d", seed, now, d.peers.Len(), len(want))
			}
			for p, at := range want {
				if at <= now || p.timer.When() != at {
					t.Fatalf("seed %d, time %d: a peer wanted at %d has %d", seed, now, at, p.timer.When())
				}
			}
		}
	}
}
