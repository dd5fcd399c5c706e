// Package latency keeps distributions of durations: of rdsctl bench and rds-stress. The
// benchmark bench and rdsctl ping have none of it: they keep every duration, so that their
// percentiles are exact.
package latency

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Max is the longest duration that is told apart. Longer ones count as this.
const Max = 100 * time.Second

// Histogram counts durations from 1 ns to Max, each with three significant digits.
type Histogram struct{ h *hdrhistogram.Histogram }

// New returns an empty histogram.
func New() *Histogram { return &Histogram{hdrhistogram.New(1, int64(Max), 3)} }

// Record counts one duration.
func (h *Histogram) Record(d time.Duration) {
	_ = h.h.RecordValue(int64(max(1, min(d, Max)))) // it is within the limits
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) { h.h.Merge(o.h) }

// Reset empties the histogram.
func (h *Histogram) Reset() { h.h.Reset() }

// Summary is a distribution, in nanoseconds.
type Summary struct {
	Count uint64        `json:"count"`
	Min   time.Duration `json:"min_ns"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p99_9_ns"`
	P9999 time.Duration `json:"p99_99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// Summary is nil for an empty histogram.
func (h *Histogram) Summary() *Summary {
	n := h.h.TotalCount()
	if n == 0 {
		return nil
	}
	at := func(p float64) time.Duration { return time.Duration(h.h.ValueAtQuantile(p)) }
	return &Summary{uint64(n), time.Duration(h.h.Min()), time.Duration(h.h.Mean()), at(50), at(90), at(99), at(99.9), at(99.99), time.Duration(h.h.Max())}
}

// PerSecond is n in each second of d, 0 if d is none.
func PerSecond(n uint64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
