package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// writeTable prints the cases, the goals, and what was not measured.
func (r *report) writeTable(out io.Writer) error {
	fmt.Fprintf(out, "%s, kernel %s, %d CPUs; TCP congestion control %s", r.Go, r.Kernel, r.CPUs, r.Congestion)
	if r.Why != "" {
		fmt.Fprintf(out, " (%s is refused here: %s; rdsd and TCP both use the system's)", wantCongestion, r.Why)
	}
	fmt.Fprintf(out, "; crc %s\nmedian [min-max] of up to %d runs of %gs\n\n", r.CRC, r.rounds(), r.Duration)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "case\tresult\tp99 us\tCPU s/M\tallocs/msg\tratio\tCPU ratio\t")
	group := ""
	for _, c := range r.Cases {
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(w, "%s:\t\t\t\t\t\t\t\n", group)
		}
		if len(c.Main.Runs) == 0 {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\t-\t%s\n", c.Name, c.Doc)
			continue
		}
		p99 := "-"
		if len(c.P99.Runs) > 0 {
			p99 = c.P99.String()
		}
		fmt.Fprintf(w, "%s\t%s %s%s\t%s\t%s\t%.4f\t%s\t%s\t%s\n", c.Name, &c.Main, c.Unit, c.extras(), p99, &c.CPU, c.Allocs.Median, times(c.Ratio, c.Peer), times(c.RatioC, ""), c.Doc)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nRatios are of medians: a round trip's is better when lower, a rate's when higher.\nCPU is of all processes, daemons included, per million messages (a round trip is two, an operation one).")
	if len(r.Goals) > 0 {
		fmt.Fprintln(out)
		fmt.Fprintln(w, "measure\tgoal\tmeasured [range of the runs]\tverdict\t")
		for _, g := range r.Goals {
			v := "-"
			if g.Verdict != unknown {
				v = g.Value.String()
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", g.Measure, g.Goal, v, g.Verdict)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, "\nnot measured:", n)
	}
	return nil
}

func (r *report) rounds() (n int) {
	for _, c := range r.Cases {
		n = max(n, len(c.Main.Runs))
	}
	return n
}

func (c *caseResult) extras() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c.Extra)) {
		fmt.Fprintf(&b, ", %s %s", c.Extra[k], k)
	}
	return b.String()
}

func times(r *figure, peer string) string {
	if r == nil {
		return "-"
	}
	if peer != "" {
		peer = " " + peer
	}
	return short(r.Median) + "x" + peer
}
