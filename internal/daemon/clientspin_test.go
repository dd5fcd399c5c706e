package daemon

import (
	"testing"
	"time"
)

func TestClientSpin(t *testing.T) {
	for _, tc := range []struct {
		engine time.Duration
		cpus   int
		want   uint64
	}{
		{50 * time.Microsecond, 1, atOnce},
		{50 * time.Microsecond, 3, atOnce},
		{50 * time.Microsecond, 4, 50_000},
		{0, 64, atOnce}, // a daemon that does not spin suggests no more
	} {
		if got := clientSpin(tc.engine, tc.cpus); got != tc.want {
			t.Errorf("engine %v, %d processors: %d, want %d", tc.engine, tc.cpus, got, tc.want)
		}
	}
}
