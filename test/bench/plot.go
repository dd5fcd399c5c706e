package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// point is the place of a case's figure in the plots: a series, and x.
type point struct {
	plot, series string
	x            float64
}

// plots are the plots that -plots writes, a file for each.
var plots = []struct{ name, title, x, y string }{
	{"rate-size", "One-way rate and message size", "bytes a message", "million messages a second"},
	{"rtt-size", "Round trip and message size", "bytes a message", "p50, us"},
	{"rate-sockets", "One-way rate of 64 B and active sockets", "sockets", "million messages a second"},
	{"rtt-idle", "Round trip of 64 B beside idle sockets and peers", "idle", "p50, us"},
	{"rate-idle", "One-way rate of 64 B beside idle sockets and peers", "idle", "million messages a second"},
}

// writePlots writes the plots that have at least two points, and returns their files.
func (r *report) writePlots(dir string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, p := range plots {
		c := chart{title: p.title, xLabel: p.x, yLabel: p.y}
		for _, res := range r.Cases {
			for _, at := range res.points {
				if at.plot == p.name && len(res.Main.Runs) > 0 {
					c.add(at.series, mark{at.x, res.Main.Median, res.Main.Min, res.Main.Max})
				}
			}
		}
		if c.marks() < 2 {
			continue
		}
		name := filepath.Join(dir, p.name+".svg")
		if err := os.WriteFile(name, []byte(c.svg()), 0o644); err != nil {
			return files, err
		}
		files = append(files, name)
	}
	return files, nil
}

// chart is a plot of lines. Both axes are logarithmic.
type chart struct {
	title, xLabel, yLabel string
	lines                 []line
}

type line struct {
	name  string
	marks []mark
}

// mark is a median and its range, at x.
type mark struct{ x, y, min, max float64 }

func (c *chart) add(series string, m mark) {
	i := slices.IndexFunc(c.lines, func(l line) bool { return l.name == series })
	if i < 0 {
		i = len(c.lines)
		c.lines = append(c.lines, line{name: series})
	}
	c.lines[i].marks = append(c.lines[i].marks, m)
}

func (c *chart) marks() (n int) {
	for _, l := range c.lines {
		n += len(l.marks)
	}
	return n
}

const (
	svgWidth, svgHeight = 820, 440
	svgLeft, svgRight   = 70, 230
	svgTop, svgBottom   = 40, 50
)

var colours = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b"}

// axis maps values to places, logarithmically. It begins and ends at whole powers of base.
type axis struct {
	low, high float64 // logarithms
	from, to  float64 // places
	base      float64
}

func newAxis(values []float64, base, from, to float64) axis {
	log := func(v float64) float64 { return math.Log(v) / math.Log(base) }
	a := axis{math.Inf(1), math.Inf(-1), from, to, base}
	for _, v := range values {
		if v > 0 {
			a.low, a.high = min(a.low, math.Floor(log(v)+1e-9)), max(a.high, math.Ceil(log(v)-1e-9))
		}
	}
	if a.low >= a.high {
		a.high = a.low + 1
	}
	return a
}

func (a axis) at(v float64) float64 {
	if v <= 0 {
		return a.from
	}
	l := math.Log(v) / math.Log(a.base)
	return a.from + (l-a.low)/(a.high-a.low)*(a.to-a.from)
}

// ticks returns at most ten powers of the base.
func (a axis) ticks() (t []float64) {
	step := math.Ceil((a.high - a.low) / 10)
	for e := a.low; e <= a.high; e += step {
		t = append(t, math.Pow(a.base, e))
	}
	return t
}

func tickName(v float64) string {
	switch {
	case v >= 1<<20 && math.Mod(v, 1<<20) == 0:
		return fmt.Sprintf("%gMi", v/(1<<20))
	case v >= 1<<10 && math.Mod(v, 1<<10) == 0:
		return fmt.Sprintf("%gKi", v/(1<<10))
	}
	return fmt.Sprintf("%.4g", v)
}

// svg draws the chart.
func (c *chart) svg() string {
	var xs, ys []float64
	for _, l := range c.lines {
		slices.SortFunc(l.marks, func(a, b mark) int { return int(math.Copysign(1, a.x-b.x)) })
		for _, m := range l.marks {
			xs, ys = append(xs, m.x), append(ys, m.min, m.max)
		}
	}
	xBase := 2.0
	if slices.ContainsFunc(xs, func(x float64) bool { return math.Log2(x) != math.Trunc(math.Log2(x)) }) {
		xBase = 10
	}
	x := newAxis(xs, xBase, svgLeft, svgWidth-svgRight)
	y := newAxis(ys, 2, svgHeight-svgBottom, svgTop)
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, svgWidth, svgHeight, svgWidth, svgHeight)
	p(`<rect width="100%%" height="100%%" fill="white"/>`)
	p(`<text x="%d" y="24" font-size="15">%s</text>`, svgLeft, escape(c.title))
	for _, t := range x.ticks() {
		p(`<path d="M%.1f %d V%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x.at(t), svgTop, svgHeight-svgBottom, x.at(t), svgHeight-svgBottom+16, tickName(t))
	}
	for _, t := range y.ticks() {
		p(`<path d="M%d %.1f H%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, svgLeft, y.at(t), svgWidth-svgRight, svgLeft-6, y.at(t)+4, tickName(t))
	}
	p(`<text x="%d" y="%d" text-anchor="middle">%s</text>`, (svgLeft+svgWidth-svgRight)/2, svgHeight-12, escape(c.xLabel))
	p(`<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>`, (svgTop+svgHeight-svgBottom)/2, escape(c.yLabel))
	for i, l := range c.lines {
		colour := colours[i%len(colours)]
		var path []string
		for _, m := range l.marks {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x.at(m.x), y.at(m.y)))
			p(`<path d="M%.1f %.1f V%.1f" stroke="%s"/><circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x.at(m.x), y.at(m.min), y.at(m.max), colour, x.at(m.x), y.at(m.y), colour)
		}
		p(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(path, " "), colour)
		p(`<text x="%d" y="%d" fill="%s">%s</text>`, svgWidth-svgRight+12, svgTop+16+20*i, colour, escape(l.name))
	}
	p(`</svg>`)
	return b.String()
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
