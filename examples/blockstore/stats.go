package main

import (
	"slices"
	"sync"
	"time"
)

// copyStats is what a client reports about one copy.
type copyStats struct {
	Direction string  `json:"direction"`
	Bytes     int64   `json:"bytes"`
	Blocks    uint64  `json:"blocks"`
	BlockSize int     `json:"block_size"`
	Window    int     `json:"window"`
	Seconds   float64 `json:"seconds"`
	MBPerSec  float64 `json:"mb_per_s"` // 10^6 bytes
	P50Micros float64 `json:"p50_us"`   // from a block's first request until it has come (copy-out) or is durable (copy-in)
	P99Micros float64 `json:"p99_us"`
	Retried   int     `json:"retried"`   // requests repeated because something went wrong
	TimedOut  int     `json:"timed_out"` // of these, because no answer came in time
	Corrupt   int     `json:"corrupt"`   // of these, because of a wrong checksum
}

// recorder collects the times of blocks. It is safe for concurrent use.
type recorder struct {
	mu                         sync.Mutex // guards the fields below
	times                      []time.Duration
	retried, timedOut, corrupt int
}

func (r *recorder) block(d time.Duration) {
	r.mu.Lock()
	r.times = append(r.times, d)
	r.mu.Unlock()
}

// retry counts a repeated request.
func (r *recorder) retry(timedOut, corrupt bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retried++
	if timedOut {
		r.timedOut++
	}
	if corrupt {
		r.corrupt++
	}
}

// fill puts times and counts into s.
func (r *recorder) fill(s *copyStats, elapsed time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.times)
	s.P50Micros = micros(quantile(r.times, 0.50))
	s.P99Micros = micros(quantile(r.times, 0.99))
	s.Retried, s.TimedOut, s.Corrupt = r.retried, r.timedOut, r.corrupt
	s.Seconds = elapsed.Seconds()
	if elapsed > 0 {
		s.MBPerSec = float64(s.Bytes) / 1e6 / elapsed.Seconds()
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// quantile returns the smallest element that a share q of all elements does not exceed, or
// 0 if there are none. sorted must be sorted.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q * float64(len(sorted)))
	if float64(i) == q*float64(len(sorted)) && i > 0 {
		i--
	}
	return sorted[min(i, len(sorted)-1)]
}

// serveStats is what the server reports when it stops.
type serveStats struct {
	Reads        uint64      `json:"reads"`
	Writes       uint64      `json:"writes"`
	Fsyncs       uint64      `json:"fsyncs"`
	Operations   uint64      `json:"operations"`
	Success      uint64      `json:"success"`
	Dropped      uint64      `json:"dropped"`
	Unknown      uint64      `json:"unknown"`
	OtherStatus  uint64      `json:"other_status"`
	Failed       uint64      `json:"failed"` // requests answered with a failure that is not transient
	Destinations []destStats `json:"destinations"`
}

// destStats has the id of the last operation issued to an address, and the high-water mark.
// They are equal when all operations are locally complete.
type destStats struct {
	Addr   string `json:"addr"`
	Issued uint64 `json:"issued"`
	HWM    uint64 `json:"hwm"`
}
