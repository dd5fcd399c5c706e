package ctl

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

// Times is a distribution of durations. A message's time is from the engine's turn that took
// it in until its ack was handled, an operation's from its post to its status. The datagrams
// of a run count each. Quantiles are estimates, see stats.Times.
type Times struct {
	Count uint64        `json:"count"`
	Sum   time.Duration `json:"sum_ns"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	// Buckets are counts: the first of durations below 2^-20 s, each other one of durations
	// up to twice as long. Empty buckets at the end are left out.
	Buckets []uint64 `json:"buckets"`
}

// TimesOf is the form of t that rdsctl gets.
func TimesOf(t *stats.Times) Times {
	n := len(t.Counts)
	for n > 0 && t.Counts[n-1] == 0 {
		n--
	}
	return Times{Count: t.Count(), Sum: time.Duration(t.Sum), Mean: t.Mean(),
		P50: t.Quantile(0.5), P90: t.Quantile(0.9), P99: t.Quantile(0.99), Buckets: slices.Clone(t.Counts[:n])}
}

// Stats is what TimesOf got. Buckets that this version does not know count in the last one.
func (t *Times) Stats() (s stats.Times) {
	for i, n := range t.Buckets {
		s.Counts[min(i, stats.TimeBuckets-1)] += n
	}
	s.Sum = uint64(t.Sum)
	return s
}

// String is the distribution for people.
func (t *Times) String() string {
	if t.Count == 0 {
		return "none yet"
	}
	return fmt.Sprintf("p50 %v, p90 %v, p99 %v, mean %v of %d", Rounded(t.P50), Rounded(t.P90), Rounded(t.P99), Rounded(t.Mean), t.Count)
}

// Rounded is d with three significant digits at most.
func Rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}
