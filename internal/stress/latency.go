package stress

import (
	"math/bits"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdsd/rdsd/internal/stress/report"
)

// maxTrip is the longest round trip told apart; longer ones count as this.
const maxTrip = 100 * time.Second

// latencies are round trips: for percentiles, and in rds-stress's buckets.
type latencies struct {
	hdr     *hdrhistogram.Histogram // nanoseconds
	buckets [report.Buckets]uint64
}

func (l *latencies) init() { l.hdr = hdrhistogram.New(1, int64(maxTrip), 3) }

func (l *latencies) add(d time.Duration) {
	d = max(1, min(d, maxTrip))
	_ = l.hdr.RecordValue(int64(d)) // it is within the limits
	us := uint64(d / time.Microsecond)
	l.buckets[min(max(bits.Len64(us)-1, 0), report.Buckets-1)]++
}

func (l *latencies) merge(o *latencies) {
	l.hdr.Merge(o.hdr)
	for i, n := range o.buckets {
		l.buckets[i] += n
	}
}

func (l *latencies) percentiles() *report.Percentiles {
	if l.hdr.TotalCount() == 0 {
		return nil
	}
	at := func(p float64) time.Duration { return time.Duration(l.hdr.ValueAtQuantile(p)) }
	return &report.Percentiles{Min: time.Duration(l.hdr.Min()), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: time.Duration(l.hdr.Max())}
}
