package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/test/bench/worker"
)

func TestFigure(t *testing.T) {
	for _, tc := range []struct {
		runs             []float64
		median, min, max float64
	}{
		{nil, 0, 0, 0},
		{[]float64{3}, 3, 3, 3},
		{[]float64{3, 1}, 2, 1, 3},
		{[]float64{5, 1, 2}, 2, 1, 5},
	} {
		f := figure{Runs: tc.runs}
		if f.summarize(); f.Median != tc.median || f.Min != tc.min || f.Max != tc.max {
			t.Errorf("%v: %+v", tc.runs, f)
		}
	}
}

func newFigure(runs ...float64) *figure {
	f := &figure{Runs: runs}
	f.summarize()
	return f
}

func TestFigureOver(t *testing.T) {
	for _, tc := range []struct {
		f, over          *figure
		median, min, max float64
		ok               bool
	}{
		{newFigure(2, 4, 8), newFigure(1, 2, 2), 2, 2, 4, true},
		{newFigure(3), newFigure(6, 6, 6), 0.5, 0.5, 0.5, true},
		{newFigure(1), newFigure(0), 0, 0, 0, false},
		{newFigure(), newFigure(1), 0, 0, 0, false},
	} {
		r, ok := tc.f.over(tc.over)
		if ok != tc.ok || r.Median != tc.median || r.Min != tc.min || r.Max != tc.max {
			t.Errorf("%v over %v: %+v %v", tc.f.Runs, tc.over.Runs, r, ok)
		}
	}
}

func TestGoalJudge(t *testing.T) {
	most := goal{atLeast: false, limit: 2, stretch: 1}
	least := goal{atLeast: true, limit: 8}
	for _, tc := range []struct {
		g    goal
		v    float64
		want verdict
	}{
		{most, 2.1, missed}, {most, 2, met}, {most, 1, stretched}, {most, 0.5, stretched},
		{least, 7.9, missed}, {least, 8, met}, {least, 100, met},
	} {
		if got := tc.g.judge(tc.v); got != tc.want {
			t.Errorf("%+v of %v: %q, want %q", tc.g, tc.v, got, tc.want)
		}
	}
}

// TestSummarize has three cases and four goals. A figure of one goal is missing, and one goal is
// for a case that was not selected.
func TestSummarize(t *testing.T) {
	o := &options{crc: "auto"}
	rep := newReport(o, []testCase{
		{name: "a", group: "rtt", metric: latency, peer: "b", size: 64},
		{name: "b", group: "rtt", metric: latency, size: 64},
		{name: "c", group: "rdma", metric: throughput, size: 1000},
	})
	rep.Cases[0].add(run{Result: worker.Result{Messages: 200, Seconds: 1, CPU: 2e-4, P50: 10, P99: 40, Extra: map[string]float64{"kib_each": 3}}})
	rep.Cases[1].add(run{Result: worker.Result{Messages: 200, Seconds: 1, CPU: 1e-4, P50: 5, P99: 10}})
	rep.summarize([]goal{
		ratioGoal("trip", "a", "b", false, 2, 0),
		ratioGoal("trip p99", "a", "a", false, 3, 0).figures(p99Figure, mainFigure),
		boundGoal("memory", "a", kibEach, false, 4, 3, "KiB"),
		ratioGoal("bulk", "c", "b", true, 1, 0),
		ratioGoal("other", "d", "b", true, 1, 0),
	})
	if r := rep.Cases[0].Ratio; r == nil || r.Median != 2 {
		t.Errorf("ratio %+v", r)
	}
	if r := rep.Cases[0].RatioC; r == nil || r.Median != 2 {
		t.Errorf("CPU ratio %+v", r)
	}
	var got []string
	for _, g := range rep.Goals {
		got = append(got, g.Measure+": "+string(g.Verdict))
	}
	if want := "trip: met, trip p99: MISSED, memory: met, stretch too, bulk: not measured"; strings.Join(got, ", ") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, ", "), want)
	}
	var table bytes.Buffer
	if err := rep.writeTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.0 [10.0-10.0] us, 3.00 [3.00-3.00] kib_each", "2.00x b", "<= 3x a", "MISSED", "not measured"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.1234: "0.123", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234: "1234", -2: "-2.00"} {
		if got := short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestAxis(t *testing.T) {
	a := newAxis([]float64{3, 100}, 2, 0, 60) // from 2 to 128
	for v, want := range map[float64]float64{2: 0, 4: 10, 128: 60, 0: 0} {
		if got := a.at(v); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%v is at %v, want %v", v, got, want)
		}
	}
	if n := len(a.ticks()); n != 7 {
		t.Errorf("%d ticks, want 7", n)
	}
	if same := newAxis([]float64{8}, 2, 0, 1); same.at(8) != 0 {
		t.Errorf("a single value is at %v", same.at(8))
	}
	if n := len(newAxis([]float64{1, 1e30}, 2, 0, 1).ticks()); n > 11 {
		t.Errorf("%d ticks", n)
	}
}

// TestChart checks that a plot is well-formed XML for any name of a series, and has all marks.
func TestChart(t *testing.T) {
	c := chart{title: "a < b & c", xLabel: "x", yLabel: "y"}
	for i, x := range []float64{64, 8, 1024} {
		c.add("one", mark{x, float64(i + 1), 0.5, 9})
		c.add("<two>", mark{x, 2, 2, 2})
	}
	text := c.svg()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	if n := strings.Count(text, "<circle"); n != 6 || c.marks() != 6 {
		t.Errorf("%d circles for %d marks, want 6", n, c.marks())
	}
	if n := strings.Count(text, "<polyline"); n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
}

func TestParseField(t *testing.T) {
	const status = "Name:\trdsd\nVmRSS:\t  123 kB\nvoluntary_ctxt_switches:\t7\nEmpty:\n"
	for _, tc := range []struct {
		name string
		want int64
		ok   bool
	}{{"VmRSS", 123, true}, {"voluntary_ctxt_switches", 7, true}, {"Empty", 0, false}, {"Name", 0, false}, {"Vm", 0, false}} {
		if got, err := parseField(status, "f", tc.name); got != tc.want || (err == nil) != tc.ok {
			t.Errorf("%s: %d %v", tc.name, got, err)
		}
	}
	if n, err := resident(os.Getpid()); err != nil || n < 1<<20 {
		t.Errorf("this process: %d bytes, %v", n, err)
	}
	if n, err := switches(os.Getpid()); err != nil || n < 1 {
		t.Errorf("this process: %d switches, %v", n, err)
	}
	if _, err := switches(-1); err == nil {
		t.Error("no process has switches")
	}
}
