package latency

import (
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	h, o := New(), New()
	if s := h.Summary(); s != nil {
		t.Errorf("of nothing: %+v", s)
	}
	for i := range 999 {
		h.Record(time.Duration(i+1) * time.Microsecond)
	}
	o.Record(time.Hour) // counts as Max
	h.Merge(o)
	s := h.Summary()
	near := func(got, want time.Duration) bool { return got > want-want/500 && got < want+want/500 }
	if s.Count != 1000 || s.Min != time.Microsecond || !near(s.P50, 500*time.Microsecond) || !near(s.P90, 900*time.Microsecond) ||
		!near(s.P99, 990*time.Microsecond) || !near(s.P9999, Max) || !near(s.Max, Max) {
		t.Errorf("%+v", s)
	}
	if h.Reset(); h.Summary() != nil {
		t.Error("not empty after Reset")
	}
	if PerSecond(10, 2*time.Second) != 5 || PerSecond(10, 0) != 0 {
		t.Error("PerSecond")
	}
}
