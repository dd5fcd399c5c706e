// Package report prints the results of a stress test: in rds-stress's columns, as its CSV,
// and as JSON.
package report

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/latency"
)

// Counts are sums over all tasks.
type Counts struct {
	RequestsSent     uint64 `json:"requests_sent"`
	RequestsReceived uint64 `json:"requests_received"`
	AcksSent         uint64 `json:"acks_sent"`
	AcksReceived     uint64 `json:"acks_received"`
	SentBytes        uint64 `json:"sent_bytes"`
	ReceivedBytes    uint64 `json:"received_bytes"`
	RDMAInBytes      uint64 `json:"rdma_in_bytes"`  // bytes that RDMA moved into this host's memory
	RDMAOutBytes     uint64 `json:"rdma_out_bytes"` // bytes that RDMA moved out of it
	SendCalls        uint64 `json:"send_calls"`     // calls that queued a request
	SendTime         uint64 `json:"send_calls_ns"`
	RoundTrips       uint64 `json:"round_trips"`
	RoundTripTime    uint64 `json:"round_trips_ns"`
}

// Sub returns the difference of c and the earlier counts b.
func (c Counts) Sub(b Counts) Counts {
	return Counts{
		c.RequestsSent - b.RequestsSent, c.RequestsReceived - b.RequestsReceived, c.AcksSent - b.AcksSent, c.AcksReceived - b.AcksReceived,
		c.SentBytes - b.SentBytes, c.ReceivedBytes - b.ReceivedBytes, c.RDMAInBytes - b.RDMAInBytes, c.RDMAOutBytes - b.RDMAOutBytes,
		c.SendCalls - b.SendCalls, c.SendTime - b.SendTime, c.RoundTrips - b.RoundTrips, c.RoundTripTime - b.RoundTripTime,
	}
}

// Heard returns the number of messages from the peer.
func (c Counts) Heard() uint64 { return c.RequestsReceived + c.AcksReceived }

// Line is one row: the counts of an interval.
type Line struct {
	Tasks int           `json:"tasks"`
	Time  time.Duration `json:"time_ns"`
	Counts
	CPU float64 `json:"cpu_percent"` // of all CPUs; negative: not measured
}

// perSecond returns n for the line's time as a rate.
func (l *Line) perSecond(n uint64) float64 { return latency.PerSecond(n, l.Time) }

func mean(sum, n uint64) float64 { // us
	if n == 0 {
		return 0
	}
	return float64(sum) / float64(n) / 1e3
}

func (l *Line) thruput() float64 { return l.perSecond(l.SentBytes+l.ReceivedBytes) / 1024 }

// Header prints the line above the columns.
func Header(w io.Writer) {
	fmt.Fprintf(w, "%4s %6s %6s %10s %10s %10s %7s %8s %5s\n", "tsks", "tx/s", "rx/s", "tx+rx K/s", "mbi K/s", "mbo K/s", "tx us/c", "rtt us", "cpu %")
}

// Print prints l in rds-stress's columns, followed by note.
func (l *Line) Print(w io.Writer, note string) {
	fmt.Fprintf(w, "%4d %6.0f %6.0f %10.2f %10.2f %10.2f %7.2f %8.2f %5.2f%s\n", l.Tasks,
		l.perSecond(l.RequestsSent), l.perSecond(l.RequestsReceived), l.thruput(),
		l.perSecond(l.RDMAInBytes)/1024, l.perSecond(l.RDMAOutBytes)/1024,
		mean(l.SendTime, l.SendCalls), mean(l.RoundTripTime, l.RoundTrips), l.CPU, note)
}

// Buckets is the number of buckets in the histogram of round trips. Bucket i counts round trips
// from 2^i to 2^(i+1) us. The first bucket also has the shorter ones, the last the longer ones.
const Buckets = 16

// Histogram prints the buckets.
func Histogram(w io.Writer, buckets *[Buckets]uint64) {
	fmt.Fprint(w, "\nRTT histogram\nRTT (us)        \t\t    Count\n")
	for i, n := range buckets {
		fmt.Fprintf(w, "[%6d - %6d] \t\t %8d\n", 1<<i, 1<<(i+1), n)
	}
}

// Report is the result of a whole test.
type Report struct {
	Role          string           `json:"role"` // "active", "passive"
	Local         netip.Addr       `json:"local"`
	Peer          netip.Addr       `json:"peer"`
	Parameters    Parameters       `json:"parameters"`
	Started       time.Time        `json:"started"`
	Interrupted   bool             `json:"interrupted"`
	Verified      bool             `json:"verified"` // payload and buffers were compared and were right
	Total         Line             `json:"total"`
	RoundTrip     *latency.Summary `json:"round_trip,omitempty"`
	Intervals     []Line           `json:"intervals"`
	Retries       uint64           `json:"retries"`     // messages sent again (async)
	Disconnects   uint64           `json:"disconnects"` // how often a task lost the connection to the peer
	CongestedSend uint64           `json:"congested"`   // sends delayed because the receiver was congested
	Failure       string           `json:"failure,omitempty"`
	Buckets       [Buckets]uint64  `json:"-"`
}

// Parameters are the parameters that both sides have agreed on.
type Parameters struct {
	Tasks        int    `json:"tasks"`
	Depth        int    `json:"depth"`
	RequestBytes int    `json:"request_bytes"`
	AckBytes     int    `json:"ack_bytes"`
	RDMABytes    int    `json:"rdma_bytes"`
	RDMAPieces   int    `json:"rdma_pieces"`
	RDMAMode     string `json:"rdma_mode,omitempty"`
	Seconds      int    `json:"seconds"`
	Lane         int    `json:"lane"`
	Verify       bool   `json:"verify"`
	Simplex      bool   `json:"simplex"`
	Async        bool   `json:"async"`
}
