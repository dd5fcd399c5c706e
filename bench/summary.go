package main

import (
	"fmt"
	"io"
	"strings"
)

// column is a column of a table of the summary: a figure of the cases whose names end with the suffix.
type column struct {
	head   string
	suffix string
	figure figureName
}

// summaryTable is a table of the summary. Each row is a system by the prefix of its cases' names.
type summaryTable struct {
	title   string
	columns []column
	rows    [][2]string // prefix and text
}

// messageRows are the systems of the first table.
var messageRows = [][2]string{
	{"rds", "rdsd, a daemon on each host"},
	{"embedded", "rdsd, a daemon within each program"},
	{"local", "rdsd, both programs on one host"},
	{"tcp", "TCP, a write each"},
	{"zmq", "ZeroMQ over TCP"},
	{"nats", "NATS, its server in between"},
	{"aeron", "Aeron, a driver for each"},
	{"floor", "bare path"},
	{"model", "model"},
}

// summary are the tables of the form "summary", which docs/performance.md has.
var summary = []summaryTable{
	{"Messages of 64 B", []column{
		{"one way, M/s", "-rate", mainFigure}, {"CPU of that, µs a message", "-rate", cpuFigure},
		{"round trip, µs", "-rtt", mainFigure}, {"round trip p99, µs", "-rtt", p99Figure}, {"CPU of that, µs a message", "-rtt", cpuFigure},
	}, messageRows},
	{"One way with a call for each datagram, 64 B", []column{
		{"M/s", "-rate-1", mainFigure}, {"CPU, µs a message", "-rate-1", cpuFigure},
	}, [][2]string{{"rds", "rdsd, a daemon on each host"}, {"model", "model"}}},
	{"Bulk data between two hosts, walking 1 MiB", []column{
		{"GB/s", "-1m", mainFigure},
	}, [][2]string{{"rdma-write", "rdsd, RDMA writes of 1 MiB"}, {"rdma-read", "rdsd, RDMA reads of 1 MiB"}, {"tcp-bulk", "TCP, writes of 256 KiB"}, {"floor-bulk", "bare path, 1 MiB"}}},
	{"Calls and answers of 64 B", []column{
		{"one at a time, µs", "-rtt", mainFigure}, {"64 at a time, M/s", "-rate", mainFigure}, {"CPU of that, µs a call", "-rate", cpuFigure},
	}, [][2]string{{"rpc", "rds/rpc, a daemon on each host"}, {"grpc", "gRPC over TCP"}, {"natsreq", "NATS requests"}}},
}

// writeSummary prints the figures of one run as tables in Markdown. What was not measured is left out.
func (r *report) writeSummary(w io.Writer) error {
	date, _, _ := strings.Cut(r.Date, "T")
	fmt.Fprintf(w, "%s, commit %s, %s, kernel %s, %s: median [range] of %d rounds of %g s.\n",
		date, r.Build, r.Machine, r.Kernel, strings.Replace(r.Go, "go", "Go ", 1), r.rounds(), r.Duration)
	for _, t := range summary {
		rows := r.rows(t)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n| %s |", t.title)
		for _, c := range t.columns {
			fmt.Fprintf(w, " %s |", c.head)
		}
		fmt.Fprintf(w, "\n|%s\n%s\n", strings.Repeat("---|", len(t.columns)+1), strings.Join(rows, "\n"))
	}
	_, err := fmt.Fprintln(w)
	return err
}

// rows returns the lines of a table that have a figure.
func (r *report) rows(t summaryTable) (lines []string) {
	for _, row := range t.rows {
		line, any := "| "+row[1]+" |", false
		for _, c := range t.columns {
			cell := "–"
			if f := r.find(ref{row[0] + c.suffix, c.figure}); f != nil {
				cell, any = f.String(), true
			}
			line += " " + cell + " |"
		}
		if any {
			lines = append(lines, line)
		}
	}
	return lines
}
