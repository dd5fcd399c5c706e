package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
)

// peerCounts are sums over the connections of both daemons.
type peerCounts struct {
	resets, retransmitted, dropped, unknown, lost uint64
}

func (d *demo) peerCounts(ctx context.Context) (peerCounts, error) {
	var c peerCounts
	for _, h := range d.hosts {
		answer, err := d.ctl(ctx, h, "peers")
		if err != nil {
			return c, err
		}
		for _, p := range answer.Peers {
			c.resets += p.Resets
			c.retransmitted += p.Retransmitted
			c.dropped += p.DroppedOps
			c.unknown += p.UnknownOps
			c.lost += p.Lost
		}
	}
	return c, nil
}

// printReport prints a table, a column per direction.
func printReport(w io.Writer, dirs []direction, c peerCounts) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(direction) string) {
		fmt.Fprint(t, name)
		for _, d := range dirs {
			fmt.Fprint(t, "\t", cell(d))
		}
		fmt.Fprintln(t)
	}
	row("", func(d direction) string { return d.name })
	row("blocks", func(d direction) string { return fmt.Sprint(d.copy.Blocks) })
	row("MB/s", func(d direction) string { return fmt.Sprintf("%.0f", d.copy.MBPerSec) })
	row("per block p50", func(d direction) string { return fmt.Sprintf("%.2f ms", d.copy.P50/1e3) })
	row("per block p99", func(d direction) string { return fmt.Sprintf("%.2f ms", d.copy.P99/1e3) })
	row("resets", func(d direction) string { return fmt.Sprint(d.resets) })
	row("operations issued", func(d direction) string { return fmt.Sprint(d.serve.Operations) })
	row("high-water mark", func(d direction) string {
		text := ""
		for _, x := range d.serve.Destinations {
			text += fmt.Sprintf("%d of %d", x.HWM, x.Issued)
		}
		return text
	})
	row("dropped", func(d direction) string { return fmt.Sprint(d.serve.Dropped) })
	row("outcome unknown", func(d direction) string { return fmt.Sprint(d.serve.Unknown) })
	row("blocks asked for again", func(d direction) string { return fmt.Sprint(d.copy.Retried) })
	row("fsyncs", func(d direction) string { return fmt.Sprint(d.serve.Fsyncs) })
	t.Flush()
	fmt.Fprintf(w, "retransmitted messages: %d\n", c.retransmitted)
}

// compare hashes the files and says which differs from the first.
func compare(names, paths []string) (sum string, err error) {
	for i, path := range paths {
		h, err := hashFile(path)
		if err != nil {
			return "", err
		}
		if i == 0 {
			sum = h
		} else if h != sum {
			return "", fmt.Errorf("%s has SHA-256 %s, %s has %s", names[i], h, names[0], sum)
		}
	}
	return sum, nil
}

// check verifies what must hold besides the content.
func check(dirs []direction, resets int) error {
	for _, d := range dirs {
		if d.resets < min(resets, 1) {
			return fmt.Errorf("%s: not one reset hit the connection", d.name)
		}
		if n := d.serve.Success + d.serve.Dropped + d.serve.Unknown + d.serve.Other; n != d.serve.Operations {
			return fmt.Errorf("%s: %d operations issued, %d have a status", d.name, d.serve.Operations, n)
		}
		for _, x := range d.serve.Destinations {
			if x.HWM != x.Issued {
				return fmt.Errorf("%s: high-water mark towards %s is %d, %d operations were issued", d.name, x.Addr, x.HWM, x.Issued)
			}
		}
		if lost := d.serve.Dropped + d.serve.Unknown; uint64(d.copy.Retried) < lost {
			return fmt.Errorf("%s: %d operations dropped or unknown, %d blocks asked for again", d.name, lost, d.copy.Retried)
		}
	}
	return nil
}
