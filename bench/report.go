package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is all that was measured. Its JSON form is version 1.
type report struct {
	Version    int           `json:"version"`
	Go         string        `json:"go"`
	Kernel     string        `json:"kernel"`
	CPUs       int           `json:"cpus"`
	Congestion string        `json:"tcp_congestion"`
	Why        string        `json:"tcp_congestion_refused,omitempty"` // why it is not the one wanted
	CRC        string        `json:"crc"`
	Footprint  int           `json:"footprint_mib"`
	Duration   float64       `json:"duration_s"`
	Cases      []*caseResult `json:"cases"`
}

// caseResult is one case's figures over all runs.
type caseResult struct {
	Name   string   `json:"name"`
	Doc    string   `json:"doc"`
	Metric metric   `json:"metric"`
	Unit   string   `json:"unit"`
	Main   figure   `json:"main"`
	P99    *figure  `json:"p99_us,omitempty"`
	CPU    figure   `json:"cpu_s_per_million"`
	Allocs figure   `json:"application_allocs_per_message"`
	Peer   string   `json:"peer,omitempty"`
	Ratio  *float64 `json:"ratio,omitempty"` // of medians, this one's to the peer's
	RatioC *float64 `json:"cpu_ratio,omitempty"`
}

// figure is a quantity measured several times.
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

func (f *figure) String() string {
	return fmt.Sprintf("%s [%s-%s]", short(f.Median), short(f.Min), short(f.Max))
}

// short prints three significant digits.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func newReport(o *options, cs []testCase) *report {
	r := &report{Version: 1, Go: runtime.Version(), Kernel: kernel(), CPUs: runtime.NumCPU(), CRC: o.crc, Footprint: o.footprint, Duration: o.d.Seconds()}
	var refused error
	if r.Congestion, refused = congestionHere(); refused != nil {
		r.Why = refused.Error()
	}
	for _, c := range cs {
		res := &caseResult{Name: c.name, Doc: c.doc, Metric: c.metric, Peer: c.peer}
		switch c.metric {
		case latency:
			res.Unit, res.P99 = "us", &figure{}
		case rate:
			res.Unit = "M/s"
		case throughput:
			res.Unit = "GB/s"
		}
		r.Cases = append(r.Cases, res)
	}
	return r
}

func kernel() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(b))
}

// congestionHere tries what the processes will use.
func congestionHere() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return "", err
	}
	return congestion(raw)
}

func (r *caseResult) add(c testCase, m run) {
	n := float64(m.Messages)
	switch c.metric {
	case latency:
		r.Main.add(m.P50)
		r.P99.add(m.P99)
	case rate:
		r.Main.add(n / m.Seconds / 1e6)
	case throughput:
		r.Main.add(n * float64(c.size) / m.Seconds / 1e9)
	}
	r.CPU.add(m.CPU / max(n, 1) * 1e6)
	r.Allocs.add(m.allocs)
}

func (r *report) summarize() {
	by := map[string]*caseResult{}
	for _, c := range r.Cases {
		by[c.Name] = c
		c.Main.summarize()
		c.CPU.summarize()
		c.Allocs.summarize()
		if c.P99 != nil {
			c.P99.summarize()
		}
	}
	for _, c := range r.Cases {
		p := by[c.Peer]
		if p == nil || p.Main.Median == 0 || p.CPU.Median == 0 {
			continue
		}
		ratio := c.Main.Median / p.Main.Median
		c.Ratio = &ratio
		if c.Metric != throughput { // an operation is not a write
			cpu := c.CPU.Median / p.CPU.Median
			c.RatioC = &cpu
		}
	}
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *report) writeTable(out io.Writer) error {
	fmt.Fprintf(out, "%s, kernel %s, %d CPUs; TCP congestion control %s", r.Go, r.Kernel, r.CPUs, r.Congestion)
	if r.Why != "" {
		fmt.Fprintf(out, " (%s is refused here: %s; rdsd and TCP both use the system's)", wantCongestion, r.Why)
	}
	fmt.Fprintf(out, "; crc %s\nmedian [min-max] of %d runs of %gs; bulk walks through %d MiB at each end\n\n", r.CRC, len(r.Cases[0].Main.Runs), r.Duration, r.Footprint)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "case\tresult\tp99 us\tCPU s/M\tallocs/msg\tratio\tCPU ratio\t")
	for _, c := range r.Cases {
		p99 := "-"
		if c.P99 != nil {
			p99 = c.P99.String()
		}
		fmt.Fprintf(w, "%s\t%s %s\t%s\t%s\t%.4f\t%s\t%s\t%s\n", c.Name, &c.Main, c.Unit, p99, &c.CPU, c.Allocs.Median, times(c.Ratio), times(c.RatioC), c.Doc)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "\nRatios are of medians, rdsd to TCP: a round trip's is better when lower, a rate's when higher.\nCPU is of all processes, daemons included, per million messages (a round trip is two, an operation one).")
	return err
}

func times(r *float64) string {
	if r == nil {
		return "-"
	}
	return short(*r) + "x"
}
