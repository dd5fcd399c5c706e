package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// historyHeader are the columns of docs/performance/history.csv. A row is one ratio of one
// measurement. Absolute figures are not kept, because they depend on the machine more than on
// the code.
var historyHeader = []string{"date", "version", "machine", "measure", "over", "median", "min", "max"}

// writeHistory writes the ratios of r as rows of the history.
func (r *report) writeHistory(w io.Writer) error {
	out := csv.NewWriter(w)
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	for _, g := range r.Goals {
		if g.Over == "" || g.Verdict == unknown {
			continue
		}
		row := []string{r.Date, r.Build, r.Machine, g.Measure, g.Over, number(g.Value.Median), number(g.Value.Min), number(g.Value.Max)}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// historyPlots are the ratios that are plotted, by measure and case.
var historyPlots = [][2]string{
	{"one-way rate", "zmq-rate"}, {"one-way rate", "model-rate"}, {"same host rate", "model-local-rate"}, {"round trip p50", "model-rtt"}, {"round trip p50", "tcp-rtt"},
	{"RDMA write, walking-64m", "tcp-bulk-64m"}, {"CPU at full rate", "model-rate"},
}

// plotHistory plots the ratios of the file name into dir. The x axis counts measurements in the
// order of their dates.
func plotHistory(name, dir string, stderr io.Writer) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(rows) < 2 || !slices.Equal(rows[0], historyHeader) {
		return fmt.Errorf("%s: want the header %s and at least one row", name, strings.Join(historyHeader, ","))
	}
	c := chart{title: "Ratios over time", xLabel: "measurement, see " + filepath.Base(name), yLabel: "ratio"}
	var dates []string
	for _, row := range rows[1:] {
		dates = append(dates, row[0])
	}
	slices.Sort(dates)
	dates = slices.Compact(dates)
	for i, row := range rows[1:] {
		if !slices.Contains(historyPlots, [2]string{row[3], row[4]}) {
			continue
		}
		var m [3]float64
		for j, field := range row[5:] {
			if m[j], err = strconv.ParseFloat(field, 64); err != nil {
				return fmt.Errorf("%s:%d: %s: %w", name, i+2, historyHeader[5+j], err)
			}
		}
		at, _ := slices.BinarySearch(dates, row[0])
		c.add(row[3]+" / "+row[4], mark{float64(at + 1), m[0], m[1], m[2]})
	}
	if c.marks() == 0 {
		return fmt.Errorf("%s has none of the ratios that are plotted", name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out := filepath.Join(dir, "history.svg")
	if err := os.WriteFile(out, []byte(c.svg()), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "wrote", out)
	return nil
}
