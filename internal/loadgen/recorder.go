package loadgen

import (
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/latency"
)

// recorder keeps what was measured, in this interval and in all.
type recorder struct {
	mu         sync.Mutex
	now, all   *latency.Histogram
	late       *latency.Histogram // open loop: how late operations began
	ops, bytes uint64             // in all
	nowOps     uint64
	nowBytes   uint64
}

func newRecorder() *recorder {
	return &recorder{now: latency.New(), all: latency.New(), late: latency.New()}
}

// done counts ops that moved bytes together. One of them took d.
func (r *recorder) done(d time.Duration, ops, bytes uint64) {
	r.mu.Lock()
	r.now.Record(d)
	r.nowOps += ops
	r.nowBytes += bytes
	r.mu.Unlock()
}

func (r *recorder) lateness(d time.Duration) {
	r.mu.Lock()
	r.late.Record(d)
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
	i := Interval{Time: d, Operations: r.nowOps, Bytes: r.nowBytes, Latency: r.now.Summary()}
	r.all.Merge(r.now)
	r.now.Reset()
	r.ops += r.nowOps
	r.bytes += r.nowBytes
	r.nowOps, r.nowBytes = 0, 0
	return i
}

// total is all that was in the intervals so far, and how late operations began.
func (r *recorder) total(d time.Duration) (Interval, *latency.Summary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Interval{Time: d, Operations: r.ops, Bytes: r.bytes, Latency: r.all.Summary()}, r.late.Summary()
}
