package main

import (
	"fmt"
	"slices"
)

// figure is a quantity that was measured several times.
type figure struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Runs   []float64 `json:"runs"`
}

func (f *figure) add(v float64) { f.Runs = append(f.Runs, v) }

func (f *figure) summarize() {
	s := slices.Sorted(slices.Values(f.Runs))
	n := len(s)
	if n == 0 {
		return
	}
	f.Min, f.Max, f.Median = s[0], s[n-1], (s[(n-1)/2]+s[n/2])/2
}

// over returns the ratio of two figures. It is the ratio of their medians, with the range of the
// ratios within each run. Both figures of a run met the same load of the machine.
func (f *figure) over(o *figure) (r figure, ok bool) {
	if len(f.Runs) == 0 || o.Median == 0 {
		return r, false
	}
	for i := range min(len(f.Runs), len(o.Runs)) {
		if o.Runs[i] != 0 {
			r.add(f.Runs[i] / o.Runs[i])
		}
	}
	r.summarize()
	r.Median = f.Median / o.Median
	r.Min, r.Max = min(r.Min, r.Median), max(r.Max, r.Median)
	return r, true
}

func (f *figure) String() string {
	return fmt.Sprintf("%s [%s-%s]", short(f.Median), short(f.Min), short(f.Max))
}

// short formats v with three significant digits.
func short(v float64) string {
	switch {
	case v >= 100 || v <= -100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1 || v <= -1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
