package rds

import "testing"

// TestLeastRing: with the least submission ring, a destination that is opened finds the room that the daemon has
// made since.
func TestLeastRing(t *testing.T) {
	d, a, _ := pair(t, Options{Params: Params{SubEntries: 8}})
	for port := 1; port <= 8; port++ { // each opens a destination: two entries
		if _, err := trySend(a, []byte("x"), stuckAt(port)); err != nil {
			t.Fatalf("destination %d: %v", port, err)
		}
		d.do(func() {})
	}
}
