package main

import (
	"fmt"
	"io"
	"strings"
)

// summaryColumns are the systems that the form "summary" compares.
var summaryColumns = []string{"rdsd", "rdsd within each program", "TCP", "ZeroMQ", "NATS", "Aeron", "gRPC", "libfabric", "UCX"}

// summaryRow is a line of the summary: a figure of a case of each system, or of none ("").
type summaryRow struct {
	text   string
	figure figureName
	cases  []string // of the first systems; the others have none
}

// summary is the table of today's figures in docs/performance.md.
var summary = []summaryRow{
	{"64 B one way, M/s", mainFigure, rates},
	{"CPU of a message one way, µs", cpuFigure, rates},
	{"64 B one way, a call for each datagram, M/s", mainFigure, []string{"rds-rate-1", "", "tcp-rate"}},
	{"64 B round trip, µs", mainFigure, trips},
	{"64 B round trip, p99, µs", p99Figure, trips},
	{"CPU of a message of a round trip, µs", cpuFigure, trips},
	{"64 B one way on one host, M/s", mainFigure, []string{"local-rate"}},
	{"64 B round trip on one host, µs", mainFigure, []string{"local-rtt"}},
	{"bulk data (RDMA writes of 1 MiB; TCP writes of 256 KiB), GB/s", mainFigure, []string{"rdma-write-1m", "", "tcp-bulk-1m"}},
	{"RDMA reads of 1 MiB, GB/s", mainFigure, []string{"rdma-read-1m"}},
	{"call and answer of 64 B, µs", mainFigure, []string{"rpc-rtt", "", "", "", "natsreq-rtt", "", "grpc-rtt"}},
	{"calls and answers, 64 at a time, M/s", mainFigure, calls},
	{"CPU of a call, 64 at a time, µs", cpuFigure, calls},
}

var (
	rates = []string{"rds-rate", "embedded-rate", "tcp-rate", "zmq-rate", "nats-rate", "aeron-rate", "", "ofi-rate", "ucx-rate"}
	trips = []string{"rds-rtt", "embedded-rtt", "tcp-rtt", "zmq-rtt", "nats-rtt", "aeron-rtt", "", "ofi-rtt", "ucx-rtt"}
	calls = []string{"rpc-rate", "", "", "", "natsreq-rate", "", "grpc-rate"}
)

// writeSummary prints the figures of one run as a table in Markdown. A figure that was not measured
// is a dash, and a row without figures is left out.
func (r *report) writeSummary(w io.Writer) error {
	date, _, _ := strings.Cut(r.Date, "T")
	fmt.Fprintf(w, "%s, commit %s, %s, kernel %s, %s. Medians [range] of %d rounds of %g s, all in turn.\n\n",
		date, r.Build, r.Machine, r.Kernel, strings.Replace(r.Go, "go", "Go ", 1), r.rounds(), r.Duration)
	fmt.Fprintf(w, "| | %s |\n%s|\n", strings.Join(summaryColumns, " | "), strings.Repeat("|---", len(summaryColumns)+1))
	for _, row := range summary {
		cells := make([]string, len(summaryColumns))
		measured := false
		for i := range cells {
			cells[i] = "–"
			if i >= len(row.cases) {
				continue
			}
			if f := r.find(ref{row.cases[i], row.figure}); f != nil {
				cells[i], measured = f.String(), true
			}
		}
		if measured {
			fmt.Fprintf(w, "| %s | %s |\n", row.text, strings.Join(cells, " | "))
		}
	}
	return nil
}
