package engine

import "testing"

// TestPeersInParts: who lists many peers takes no turn of the engine for more
// than peersEach of them, and a peer that is forgotten meanwhile is left out.
func TestPeersInParts(t *testing.T) {
	e := newWorld(t, 1, Config{}).es[0]
	const many = 500
	for i := range many {
		if _, err := e.peers.peer(e.addrs.all[0], nobody(i), 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	asks := 0
	out, err := e.Inspect(func(f func()) error {
		f()
		if asks++; asks == 3 {
			e.peers.dropIfNew(e.peers.all[len(e.peers.all)-1])
		}
		return nil
	}).Peers()
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + (many+peersEach-1)/peersEach; asks != want || len(out) != many-1 {
		t.Errorf("%d peers in %d turns, want %d in %d", len(out), asks, many-1, want)
	}
}
