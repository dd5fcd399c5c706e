package soft

import (
	"testing"
	"time"
)

// TestAttemptTime: attempts that begin together do not end together, and none takes longer than it may.
func TestAttemptTime(t *testing.T) {
	const most, n = 5 * time.Second, 1000
	tenths := map[int64]int{}
	for range n {
		d := attemptTime(most)
		if d > most || d < most*4/5 {
			t.Fatalf("%v of %v", d, most)
		}
		tenths[d.Milliseconds()/100]++
	}
	for at, in := range tenths {
		if in > n/5 {
			t.Errorf("%d of %d end in the tenth of a second %d", in, n, at)
		}
	}
}
