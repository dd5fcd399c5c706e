package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// forms are the forms that -o can name.
var forms = map[string]func(*report, io.Writer) error{
	"table":    (*report).writeTable,
	"json":     (*report).writeJSON,
	"benchfmt": (*report).writeBenchfmt,
	"history":  (*report).writeHistory,
	"summary":  (*report).writeSummary,
}

func formNames() string { return strings.Join(slices.Sorted(maps.Keys(forms)), ", ") }

// readReport reads a report that -o json wrote.
func readReport(name string) (*report, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s is not a report of bench -o json: %w", name, err)
	}
	if r.Version != reportVersion {
		return nil, fmt.Errorf("%s has version %d of the form, this program reads version %d: measure again, or use the program that wrote it", name, r.Version, reportVersion)
	}
	return r, nil
}

// writeBenchfmt writes a line for each case and run in the format of Go's benchmarks, which
// benchstat reads.
//
// Source: golang.org/design/14313-benchmark-format.
func (r *report) writeBenchfmt(w io.Writer) error {
	fmt.Fprintf(w, "goos: linux\ngo: %s\nkernel: %s\ncpu: %s\n", r.Go, r.Kernel, r.Machine)
	for _, c := range r.Cases {
		for i, v := range c.Main.Runs {
			fmt.Fprintf(w, "Benchmark/%s/%s 1 %g %s", c.Group, c.Name, v, benchUnit(c.Unit))
			if i < len(c.P99.Runs) {
				fmt.Fprintf(w, " %g p99-us", c.P99.Runs[i])
			}
			if i < len(c.CPU.Runs) {
				fmt.Fprintf(w, " %g CPU-s/M", c.CPU.Runs[i])
			}
			fmt.Fprintln(w)
		}
	}
	return nil
}

// benchUnit returns the unit as one word, as the format requires.
func benchUnit(unit string) string { return strings.ReplaceAll(unit, " ", "-") }
