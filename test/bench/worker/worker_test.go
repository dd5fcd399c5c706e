package worker

import (
	"os"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(i + 1)
	}
	for _, c := range []struct {
		values   []int64
		permille int
		want     float64
	}{
		{nil, 500, 0},
		{[]int64{7}, 500, 7},
		{[]int64{7}, 999, 7},
		{[]int64{1, 2}, 500, 1},
		{[]int64{1, 2, 3}, 500, 2},
		{hundred, 500, 50},
		{hundred, 990, 99},
		{hundred, 999, 100},
		{hundred, 1000, 100},
	} {
		if got := Percentile(c.values, c.permille); got != c.want {
			t.Errorf("%d values, %d: %v, want %v", len(c.values), c.permille, got, c.want)
		}
	}
}

// TestCPUTime checks that the clock of another process counts what that process uses.
func TestCPUTime(t *testing.T) {
	before := CPUTime([]int{os.Getpid()})
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	if used := CPUTime([]int{os.Getpid()}) - before; used <= 0 || used > time.Minute {
		t.Errorf("%v of processor time", used)
	}
	if sum := CPUTime([]int{os.Getpid(), os.Getpid()}); sum < 2*before {
		t.Errorf("two processes %v, one %v", sum, before)
	}
}
