package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// measured returns a report of two cases and two runs that was written and read again.
func measured(t *testing.T) *report {
	t.Helper()
	rep := newReport(&options{crc: "auto"}, []testCase{
		{name: "rds-rtt", group: "rtt", metric: latency, peer: "tcp-rtt", size: 64},
		{name: "tcp-rtt", group: "rtt", metric: latency, size: 64},
	})
	for _, p50 := range []float64{20, 30} {
		rep.Cases[0].add(run{Result: worker.Result{Messages: 200, Seconds: 1, CPU: 2e-4, P50: p50, P99: 40}})
		rep.Cases[1].add(run{Result: worker.Result{Messages: 200, Seconds: 1, CPU: 1e-4, P50: 10, P99: 15}})
	}
	rep.summarize([]goal{
		ratioGoal("round trip p50", "rds-rtt", "tcp-rtt", false, 2, 0),
		boundGoal("round trip", "rds-rtt", mainFigure, false, 2, 0, "us"),
	})
	name := filepath.Join(t.TempDir(), "report.json")
	var b bytes.Buffer
	if err := rep.writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := readReport(name)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func TestBenchfmt(t *testing.T) {
	var b bytes.Buffer
	if err := measured(t).writeBenchfmt(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"cpu: ", "\nBenchmark/rtt/rds-rtt 1 20 us 40 p99-us 1 CPU-s/M\n", "\nBenchmark/rtt/rds-rtt 1 30 us ", "\nBenchmark/rtt/tcp-rtt 1 10 us 15 p99-us 0.5 CPU-s/M\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestSummary checks that a summary has a row for each figure that was measured, and no other.
func TestSummary(t *testing.T) {
	var b bytes.Buffer
	if err := measured(t).writeSummary(&b); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), ". Medians [range] of 2 rounds of 0 s, all in turn.\n\n")
	const want = `| | rdsd | rdsd within each program | TCP | ZeroMQ | NATS | Aeron | gRPC | libfabric | UCX |
|---|---|---|---|---|---|---|---|---|---|
| 64 B round trip, µs | 25.0 [20.0-30.0] | – | 10.0 [10.0-10.0] | – | – | – | – | – | – |
| 64 B round trip, p99, µs | 40.0 [40.0-40.0] | – | 15.0 [15.0-15.0] | – | – | – | – | – | – |
| CPU of a message of a round trip, µs | 1.00 [1.00-1.00] | – | 0.500 [0.500-0.500] | – | – | – | – | – | – |
`
	if table != want {
		t.Errorf("got\n%s", b.String())
	}
}

// TestHistory checks that a history has the ratios of a report, and that they are plotted.
func TestHistory(t *testing.T) {
	rep := measured(t)
	var rows bytes.Buffer
	if err := rep.writeHistory(&rows); err != nil {
		t.Fatal(err)
	}
	if got := rows.String(); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, ",round trip p50,tcp-rtt,2.5,2,3\n") {
		t.Fatalf("history %q", got)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "history.csv")
	text := strings.Join(historyHeader, ",") + "\n" + strings.Replace(rows.String(), rep.Date, "2026-01-01T00:00:00Z", 1) + rows.String()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := plotHistory(name, dir, io.Discard); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "history.svg"))
	if err != nil || strings.Count(string(svg), "<circle") != 2 {
		t.Errorf("%v, plot:\n%s", err, svg)
	}
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":               "is not a report",
		`{"version": 1}`: "version 1 of the form, this program reads version 2",
	} {
		name := filepath.Join(dir, "report.json")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readReport(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	header := strings.Join(historyHeader, ",") + "\n"
	for text, want := range map[string]string{
		"":                                  "want the header",
		"a,b\nc,d\n":                        "want the header",
		header + "d,v,m,other,case,1,1,1\n": "none of the ratios",
		header + "d,v,m,one-way rate,zmq-rate,1,x,1\n": ":2: min",
	} {
		name := filepath.Join(dir, "history.csv")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := plotHistory(name, dir, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestKeptHistory checks that docs/performance/history.csv can be plotted.
func TestKeptHistory(t *testing.T) {
	name := "../../docs/performance/history.csv"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	header, rows, _ := strings.Cut(string(text), "\n")
	if header != strings.Join(historyHeader, ",") {
		t.Errorf("header %q", header)
	}
	if rows == "" {
		return
	}
	if err := plotHistory(name, t.TempDir(), io.Discard); err != nil {
		t.Error(err)
	}
}
