package stress

import (
	"math/bits"
	"time"

	"github.com/rdsd/rdsd/internal/latency"
	"github.com/rdsd/rdsd/internal/stress/report"
)

// latencies are round trips, counted for percentiles and in rds-stress's buckets.
type latencies struct {
	hist    *latency.Histogram
	buckets [report.Buckets]uint64
}

func (l *latencies) init() { l.hist = latency.New() }

func (l *latencies) add(d time.Duration) {
	l.hist.Record(d)
	us := uint64(max(0, min(d, latency.Max)) / time.Microsecond)
	l.buckets[min(max(bits.Len64(us)-1, 0), report.Buckets-1)]++
}

func (l *latencies) merge(o *latencies) {
	l.hist.Merge(o.hist)
	for i, n := range o.buckets {
		l.buckets[i] += n
	}
}
