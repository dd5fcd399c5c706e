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

// minus is what was counted since before.
func (c peerCounts) minus(before peerCounts) peerCounts {
	return peerCounts{
		c.resets - before.resets, c.retransmitted - before.retransmitted,
		c.dropped - before.dropped, c.unknown - before.unknown, c.lost - before.lost,
	}
}

// printReport prints a table, a column per direction.
func printReport(w io.Writer, dirs []direction) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(direction) string) {
		fmt.Fprint(t, name)
		for _, d := range dirs {
			fmt.Fprint(t, "\t", cell(d))
		}
		fmt.Fprintln(t)
	}
	row("", func(d direction) string { return d.name })
	row("blocks", func(d direction) string { return fmt.Sprintf("%d of %d KiB", d.copy.Blocks, d.copy.BlockSize>>10) })
	row("MB/s, resets included", func(d direction) string { return fmt.Sprintf("%.0f", d.copy.MBPerSec) })
	row("per block p50", func(d direction) string { return fmt.Sprintf("%.2f ms", d.copy.P50/1e3) })
	row("per block p99", func(d direction) string { return fmt.Sprintf("%.2f ms", d.copy.P99/1e3) })
	row("connection resets", func(d direction) string { return fmt.Sprint(d.resets) })
	row("messages retransmitted", func(d direction) string { return fmt.Sprint(d.peers.retransmitted) })
	row("operations issued", func(d direction) string { return fmt.Sprint(d.serve.Operations) })
	row("operations dropped", func(d direction) string { return fmt.Sprint(d.serve.Dropped) })
	row("outcome unknown", func(d direction) string { return fmt.Sprint(d.serve.Unknown) })
	row("blocks asked for again", func(d direction) string { return fmt.Sprint(d.copy.Retried) })
	row("high-water mark", func(d direction) string {
		text := "-"
		for _, x := range d.serve.Destinations { // one, the client's address
			text = fmt.Sprintf("%d of %d", x.HWM, x.Issued)
		}
		return text
	})
	row("fsyncs", func(d direction) string { return fmt.Sprint(d.serve.Fsyncs) })
	t.Flush()
}

// compare hashes the files and says which differs from the first.
func compare(ctx context.Context, names, paths []string) (sum string, err error) {
	for i, path := range paths {
		h, err := hashFile(ctx, path)
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

// several is how many resets a copy of so many bytes has room for at least; a
// small file may be through before the first.
func several(bytes int64) int { return int(min(bytes/(4<<20), 3)) }

// check verifies what must hold besides the content.
func check(dirs []direction, resets int) error {
	for _, d := range dirs {
		if want := min(resets, several(d.copy.Bytes)); d.resets < want {
			return fmt.Errorf("%s: %d resets hit the connection, want %d at least", d.name, d.resets, want)
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
