package stats

import (
	"math"
	"math/bits"
	"time"
)

// TimeBuckets is the number of buckets of Times. Bucket 0 counts times below 2^-20 s, some
// 0.95 us. Bucket i counts those of 2^(i-21) s and more, below 2^(i-20) s. The last bucket
// counts all of 8 s and more. These are the bounds of a native histogram of schema 0.
const TimeBuckets = 25

// Times counts durations. It consists of whole words, so that it can be part of a row.
type Times struct {
	Counts [TimeBuckets]uint64
	Sum    uint64 // ns
}

// TimeBucket is the bucket of a duration in ns.
func TimeBucket(ns int64) int {
	const longest = 1 << 40 // far in the last bucket; more would overflow
	// 2^50/10^9: from ns to units of 2^-20 s, shifted by 30.
	units := min(uint64(max(ns, 0)), longest) * 1125900 >> 30
	return min(bits.Len64(units), TimeBuckets-1)
}

// Add counts n durations of ns each, whose bucket is TimeBucket(ns).
func (t *Times) Add(bucket int, ns int64, n uint64) {
	t.Counts[bucket] += n
	t.Sum += uint64(max(ns, 0)) * n
}

// TimeBound is the upper bound of bucket i, exclusive, in seconds.
func TimeBound(i int) float64 {
	if i >= TimeBuckets-1 {
		return math.Inf(1)
	}
	return math.Ldexp(1, i-20)
}

// Count is how many durations were counted.
func (t *Times) Count() (n uint64) {
	for _, c := range t.Counts {
		n += c
	}
	return n
}

// Mean is 0 if nothing was counted.
func (t *Times) Mean() time.Duration {
	n := t.Count()
	if n == 0 {
		return 0
	}
	return time.Duration(t.Sum / n)
}

// Quantile estimates the q-quantile (0 to 1). It takes the durations of a bucket as evenly
// spread, so that it is wrong by a factor of 2 at most. In the last bucket it is 8 s, without
// durations 0.
func (t *Times) Quantile(q float64) time.Duration {
	total := t.Count()
	if total == 0 {
		return 0
	}
	rank := max(1, q*float64(total))
	seen := 0.0
	for i, c := range t.Counts[:TimeBuckets-1] {
		if n := float64(c); n > 0 && seen+n >= rank {
			low := 0.0
			if i > 0 {
				low = TimeBound(i - 1)
			}
			return time.Duration((low + (TimeBound(i)-low)*(rank-seen)/n) * 1e9)
		}
		seen += float64(c)
	}
	return time.Duration(TimeBound(TimeBuckets-2) * 1e9)
}

// Since is what was counted after before was copied from the same Times. It is all of t if
// before is of another Times: one that has counted more.
func (t *Times) Since(before *Times) Times {
	d := *t
	for i := range d.Counts {
		if before.Counts[i] > d.Counts[i] {
			return *t
		}
		d.Counts[i] -= before.Counts[i]
	}
	d.Sum -= min(before.Sum, d.Sum)
	return d
}

// Merge adds what o has counted.
func (t *Times) Merge(o *Times) {
	for i, c := range o.Counts {
		t.Counts[i] += c
	}
	t.Sum += o.Sum
}
