// Package verdict says whether the demo's copies went as they must. It judges by what
// blockstore's programs and the daemons counted. The demo uses it, and so does the demo's
// form in the lab (test/vmlab/ibv).
package verdict

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/rdsd/rdsd/internal/ctl"
)

// Copy is what blockstore's copies print with -json.
type Copy struct {
	Bytes     int64   `json:"bytes"`
	Blocks    uint64  `json:"blocks"`
	MBPerSec  float64 `json:"mb_per_s"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	BlockSize int     `json:"block_size"`
	Retried   int     `json:"retried"`
}

// Serve is what its server prints.
type Serve struct {
	Operations   uint64 `json:"operations"`
	Success      uint64 `json:"success"`
	Dropped      uint64 `json:"dropped"`
	Unknown      uint64 `json:"unknown"`
	Other        uint64 `json:"other_status"`
	Fsyncs       uint64 `json:"fsyncs"`
	Destinations []struct {
		Addr   string `json:"addr"`
		Issued uint64 `json:"issued"`
		HWM    uint64 `json:"hwm"`
	} `json:"destinations"`
}

// Direction is the result of one copy: out, or back in.
type Direction struct {
	Name   string
	Copy   Copy
	Serve  Serve
	Peers  Counts // what the connections between the daemons counted during the copy
	Resets int    // resets that broke a connection
}

// Counts are sums over the connections of both daemons.
type Counts struct {
	Resets, Retransmitted, Dropped, Unknown, Lost uint64
}

// Add adds what one daemon reports of its peers.
func (c *Counts) Add(peers []ctl.PeerInfo) {
	for _, p := range peers {
		c.Resets += p.Resets
		c.Retransmitted += p.Retransmitted
		c.Dropped += p.DroppedOps
		c.Unknown += p.UnknownOps
		c.Lost += p.Lost
	}
}

// Minus is what was counted after before.
func (c Counts) Minus(before Counts) Counts {
	return Counts{
		c.Resets - before.Resets, c.Retransmitted - before.Retransmitted,
		c.Dropped - before.Dropped, c.Unknown - before.Unknown, c.Lost - before.Lost,
	}
}

// Print prints a table, a column per direction.
func Print(w io.Writer, dirs []Direction) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(Direction) string) {
		fmt.Fprint(t, name)
		for _, d := range dirs {
			fmt.Fprint(t, "\t", cell(d))
		}
		fmt.Fprintln(t)
	}
	row("", func(d Direction) string { return d.Name })
	row("blocks", func(d Direction) string { return fmt.Sprintf("%d of %d KiB", d.Copy.Blocks, d.Copy.BlockSize>>10) })
	row("MB/s, resets included", func(d Direction) string { return fmt.Sprintf("%.0f", d.Copy.MBPerSec) })
	row("per block p50", func(d Direction) string { return fmt.Sprintf("%.2f ms", d.Copy.P50/1e3) })
	row("per block p99", func(d Direction) string { return fmt.Sprintf("%.2f ms", d.Copy.P99/1e3) })
	row("connection resets", func(d Direction) string { return fmt.Sprint(d.Resets) })
	row("messages retransmitted", func(d Direction) string { return fmt.Sprint(d.Peers.Retransmitted) })
	row("operations issued", func(d Direction) string { return fmt.Sprint(d.Serve.Operations) })
	row("operations dropped", func(d Direction) string { return fmt.Sprint(d.Serve.Dropped) })
	row("outcome unknown", func(d Direction) string { return fmt.Sprint(d.Serve.Unknown) })
	row("blocks asked for again", func(d Direction) string { return fmt.Sprint(d.Copy.Retried) })
	row("high-water mark", func(d Direction) string {
		text := "-"
		for _, x := range d.Serve.Destinations { // one, the client's address
			text = fmt.Sprintf("%d of %d", x.HWM, x.Issued)
		}
		return text
	})
	row("fsyncs", func(d Direction) string { return fmt.Sprint(d.Serve.Fsyncs) })
	_ = t.Flush()
}

// several is the least number of resets that a copy of bytes must have met. A small file
// may be copied before the first reset.
func several(bytes int64) int { return int(min(bytes/(4<<20), 3)) }

// Check verifies everything but the content. resets is how many resets were wanted in each
// direction.
func Check(dirs []Direction, resets int) error {
	for _, d := range dirs {
		if want := min(resets, several(d.Copy.Bytes)); d.Resets < want {
			return fmt.Errorf("%s: %d resets hit the connection, want %d at least", d.Name, d.Resets, want)
		}
		if n := d.Serve.Success + d.Serve.Dropped + d.Serve.Unknown + d.Serve.Other; n != d.Serve.Operations {
			return fmt.Errorf("%s: %d operations issued, %d have a status", d.Name, d.Serve.Operations, n)
		}
		for _, x := range d.Serve.Destinations {
			if x.HWM != x.Issued {
				return fmt.Errorf("%s: high-water mark towards %s is %d, %d operations were issued", d.Name, x.Addr, x.HWM, x.Issued)
			}
		}
		if lost := d.Serve.Dropped + d.Serve.Unknown; uint64(d.Copy.Retried) < lost {
			return fmt.Errorf("%s: %d operations dropped or unknown, %d blocks asked for again", d.Name, lost, d.Copy.Retried)
		}
	}
	return nil
}
