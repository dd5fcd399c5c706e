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
	"time"

	"github.com/rdsd/rdsd/internal/version"
)

// reportVersion is the version of the JSON form.
const reportVersion = 2

// report is the result of a bench.
type report struct {
	Version    int           `json:"version"`
	Date       string        `json:"date"`    // of the start, RFC 3339
	Build      string        `json:"build"`   // version of this program
	Machine    string        `json:"machine"` // its processors
	Go         string        `json:"go"`
	Kernel     string        `json:"kernel"`
	CPUs       int           `json:"cpus"`
	Congestion string        `json:"tcp_congestion"`
	Why        string        `json:"tcp_congestion_refused,omitempty"` // why the wanted one is not used
	CRC        string        `json:"crc"`
	Duration   float64       `json:"duration_s"`
	Cases      []*caseResult `json:"cases"`
	Goals      []goalResult  `json:"goals"`
	Notes      []string      `json:"notes,omitempty"` // what was not measured, and why
}

// caseResult has one case's figures of all runs.
type caseResult struct {
	Name   string             `json:"name"`
	Group  string             `json:"group"`
	Doc    string             `json:"doc"`
	Metric metric             `json:"metric"`
	Unit   string             `json:"unit"`
	Main   figure             `json:"main"`
	P99    figure             `json:"p99_us,omitzero"`
	P999   figure             `json:"p999_us,omitzero"`
	CPU    figure             `json:"cpu_s_per_million"`
	Allocs figure             `json:"application_allocs_per_message"`
	Extra  map[string]*figure `json:"extra,omitempty"`
	Peer   string             `json:"peer,omitempty"`
	Ratio  *figure            `json:"ratio,omitempty"` // of the main figures: this case's to the peer's
	RatioC *figure            `json:"cpu_ratio,omitempty"`

	size   int
	points []point
}

// goalResult is the outcome of a goal.
type goalResult struct {
	Measure string  `json:"measure"`
	Goal    string  `json:"goal"`
	Over    string  `json:"over,omitempty"` // the case that the value is a ratio to, or empty
	Stretch float64 `json:"stretch,omitempty"`
	Value   figure  `json:"value,omitzero"`
	Verdict verdict `json:"verdict"`
}

func newReport(o *options, cs []testCase) *report {
	r := &report{Version: reportVersion, Date: time.Now().UTC().Format(time.RFC3339), Build: version.String(), Machine: machine(), Go: runtime.Version(), Kernel: kernel(), CPUs: runtime.NumCPU(), CRC: o.crc, Duration: o.d.Seconds()}
	var refused error
	if r.Congestion, refused = congestionHere(); refused != nil {
		r.Why = refused.Error()
	}
	for _, c := range cs {
		r.Cases = append(r.Cases, &caseResult{Name: c.name, Group: c.group, Doc: c.doc, Metric: c.metric, Unit: c.metric.unit(), Peer: c.peer,
			Extra: map[string]*figure{}, size: c.size, points: c.points})
	}
	return r
}

func kernel() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(b))
}

// machine returns the kernel's name of the processors.
func machine() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	model := runtime.GOARCH
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d x %s", runtime.NumCPU(), model)
}

// congestionHere returns the congestion control that the processes will have.
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

// add adds one run.
func (r *caseResult) add(m run) {
	n := float64(m.Messages)
	switch r.Metric {
	case latency:
		r.Main.add(m.P50)
		r.P99.add(m.P99)
		r.P999.add(m.P999)
	case rate:
		r.Main.add(n / m.Seconds / 1e6)
	case throughput:
		r.Main.add(n * float64(r.size) / m.Seconds / 1e9)
	case wakeups:
		r.Main.add(m.Extra[string(wakeupRate)])
	}
	r.CPU.add(m.CPU / max(n, 1) * 1e6)
	r.Allocs.add(m.allocs)
	for k, v := range m.Extra {
		if r.Extra[k] == nil {
			r.Extra[k] = &figure{}
		}
		r.Extra[k].add(v)
	}
}

// figure returns one of the case's figures, or nil if it has none of that name.
func (r *caseResult) figure(name figureName) *figure {
	switch name {
	case mainFigure:
		return &r.Main
	case p99Figure:
		return &r.P99
	case p999Figure:
		return &r.P999
	case cpuFigure:
		return &r.CPU
	case allocs:
		return &r.Allocs
	}
	return r.Extra[string(name)]
}

// find returns the figure that a goal names, or nil if there is none.
func (r *report) find(what ref) *figure {
	i := slices.IndexFunc(r.Cases, func(c *caseResult) bool { return c.Name == what.name })
	if i < 0 {
		return nil
	}
	if f := r.Cases[i].figure(what.figure); f != nil && len(f.Runs) > 0 {
		return f
	}
	return nil
}

// summarize computes medians and ratios, and judges the goals whose cases were measured.
func (r *report) summarize(gs []goal) {
	for _, c := range r.Cases {
		for _, f := range []*figure{&c.Main, &c.P99, &c.P999, &c.CPU, &c.Allocs} {
			f.summarize()
		}
		for _, f := range c.Extra {
			f.summarize()
		}
	}
	for _, c := range r.Cases {
		p := r.find(ref{c.Peer, mainFigure})
		if p == nil {
			continue
		}
		if f, ok := c.Main.over(p); ok {
			c.Ratio = &f
		}
		if c.Metric == throughput { // an operation is not a write
			continue
		}
		if f, ok := c.CPU.over(r.find(ref{c.Peer, cpuFigure})); ok {
			c.RatioC = &f
		}
	}
	for _, g := range gs {
		if res, ok := r.judge(g); ok {
			r.Goals = append(r.Goals, res)
		}
	}
}

// judge returns the outcome of g. ok is false if its case was not selected.
func (r *report) judge(g goal) (res goalResult, ok bool) {
	if !slices.ContainsFunc(r.Cases, func(c *caseResult) bool { return c.Name == g.of.name }) {
		return res, false
	}
	res = goalResult{Measure: g.measure, Goal: g.text(), Stretch: g.stretch, Verdict: unknown}
	v := r.find(g.of)
	if v == nil {
		return res, true
	}
	if g.over == nil {
		res.Value = *v
	} else {
		res.Over = g.over.name
		o := r.find(*g.over)
		if o == nil {
			return res, true
		}
		if res.Value, ok = v.over(o); !ok {
			return res, true
		}
	}
	res.Verdict = g.judge(res.Value.Median)
	return res, true
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
