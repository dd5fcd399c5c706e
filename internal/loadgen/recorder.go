package loadgen

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxLatency is the longest that is told apart; longer ones count as this.
const maxLatency = 100 * time.Second

// recorder keeps what was measured, in this interval and in all.
type recorder struct {
	mu         sync.Mutex
	now, all   *hdrhistogram.Histogram // latency, ns
	late       *hdrhistogram.Histogram // open loop: how late operations began
	ops, bytes uint64                  // in all
	nowOps     uint64
	nowBytes   uint64
}

func newRecorder() *recorder {
	h := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(maxLatency), 3) }
	return &recorder{now: h(), all: h(), late: h()}
}

func clamp(d time.Duration) int64 { return int64(max(1, min(d, maxLatency))) }

// done counts ops that moved bytes together.
func (r *recorder) done(ops, bytes uint64) {
	r.mu.Lock()
	r.nowOps += ops
	r.nowBytes += bytes
	r.mu.Unlock()
}

func (r *recorder) latency(d time.Duration) {
	r.mu.Lock()
	_ = r.now.RecordValue(clamp(d)) // within the limits
	r.mu.Unlock()
}

func (r *recorder) lateness(d time.Duration) {
	r.mu.Lock()
	_ = r.late.RecordValue(clamp(d))
	r.mu.Unlock()
}

// reset forgets everything: the warm-up is over.
func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Reset()
	r.all.Reset()
	r.late.Reset()
	r.ops, r.bytes, r.nowOps, r.nowBytes = 0, 0, 0, 0
}

// interval ends an interval of length d and says what was in it.
func (r *recorder) interval(d time.Duration) Interval {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := Interval{Time: d, Operations: r.nowOps, Bytes: r.nowBytes, Latency: latencyOf(r.now)}
	r.all.Merge(r.now)
	r.now.Reset()
	r.ops += r.nowOps
	r.bytes += r.nowBytes
	r.nowOps, r.nowBytes = 0, 0
	return i
}

// total is all that was in the intervals so far, and how late operations began.
func (r *recorder) total(d time.Duration) (Interval, *Latency) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Interval{Time: d, Operations: r.ops, Bytes: r.bytes, Latency: latencyOf(r.all)}, latencyOf(r.late)
}

// Latency is a distribution, nanoseconds.
type Latency struct {
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

// latencyOf is nil for an empty histogram.
func latencyOf(h *hdrhistogram.Histogram) *Latency {
	if h.TotalCount() == 0 {
		return nil
	}
	at := func(p float64) time.Duration { return time.Duration(h.ValueAtQuantile(p)) }
	return &Latency{uint64(h.TotalCount()), time.Duration(h.Min()), time.Duration(h.Mean()), at(50), at(90), at(99), at(99.9), at(99.99), time.Duration(h.Max())}
}
