package stats

import (
	"math"
	"testing"
	"time"
)

func TestTimeBuckets(t *testing.T) {
	for i := range TimeBuckets - 1 {
		bound := int64(TimeBound(i) * 1e9)
		if below := bound - 1 - bound/1e6; TimeBucket(below) != i { // the bounds are exact to 1e-7
			t.Errorf("%d ns is in bucket %d, want %d", below, TimeBucket(below), i)
		}
		if b := TimeBucket(bound + 1 + bound/1e6); b != i+1 {
			t.Errorf("just above %d ns is in bucket %d, want %d", bound, b, i+1)
		}
	}
	for ns, want := range map[int64]int{-5: 0, 0: 0, 8_100_000_000: TimeBuckets - 1, math.MaxInt64: TimeBuckets - 1} {
		if b := TimeBucket(ns); b != want {
			t.Errorf("%d ns is in bucket %d, want %d", ns, b, want)
		}
	}
	if !math.IsInf(TimeBound(TimeBuckets-1), 1) {
		t.Error("the last bucket has a bound")
	}
}

func TestTimes(t *testing.T) {
	var h Times
	if h.Quantile(0.99) != 0 || h.Mean() != 0 || h.Count() != 0 {
		t.Errorf("empty: %v, %v, %d", h.Quantile(0.99), h.Mean(), h.Count())
	}
	add := func(d time.Duration, n uint64) { h.Add(TimeBucket(int64(d)), int64(d), n) }
	add(50*time.Microsecond, 99)
	before := h
	add(30*time.Millisecond, 1)
	if h.Count() != 100 || h.Mean() != (99*50*time.Microsecond+30*time.Millisecond)/100 {
		t.Errorf("%d of mean %v", h.Count(), h.Mean())
	}
	for q, want := range map[float64]time.Duration{0.5: 50 * time.Microsecond, 0.99: 50 * time.Microsecond, 0.995: 30 * time.Millisecond} {
		if got := h.Quantile(q); got < want/2 || got > 2*want {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
	if d := h.Since(&before); d.Count() != 1 || d.Sum != uint64(30*time.Millisecond) {
		t.Errorf("since: %+v", d)
	}
	if d := before.Since(&h); d != before {
		t.Errorf("of another one: %+v", d)
	}
	before.Merge(&h)
	if before.Count() != 199 {
		t.Errorf("merged: %d", before.Count())
	}
	add(time.Hour, 1000)
	if got := h.Quantile(0.999); got != 8*time.Second {
		t.Errorf("beyond the last bound: %v", got)
	}
}

// The times of the mapping are read as they were published. A mapping without them, of an
// older daemon, is readable, and one whose times are not where they can be is not.
func TestTimesMapping(t *testing.T) {
	b := newBlock(t)
	b.Messages.Add(TimeBucket(1e6), 1e6, 3)
	b.Operations.Add(TimeBucket(1e3), 1e3, 1)
	b.Publish(1)
	r, err := NewReader(b.mem)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Snapshot(); s.Messages != b.Messages || s.Operations != b.Operations {
		t.Errorf("%+v and %+v", s.Messages, s.Operations)
	}
	if n := testing.AllocsPerRun(100, func() { b.Messages.Add(3, 9, 1); b.Publish(1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for off, ok := range map[uint64]bool{0: true, 3: false, uint64(Size): false, uint64(Size) - 8: false, 1 << 63: false} {
		b.mem[wOffTimes] = off
		r, err := NewReader(b.mem)
		if (err == nil) != ok {
			t.Errorf("times at %d: %v", off, err)
		}
		if err != nil {
			continue
		}
		if s := r.Snapshot(); s.Messages.Count() != 0 {
			t.Error("times out of nowhere")
		}
	}
	b.mem[wOffTimes], b.mem[wTimeBuckets] = uint64(offTimes), TimeBuckets+1
	if _, err := NewReader(b.mem); err == nil {
		t.Error("more buckets than this version knows were read")
	}
}
