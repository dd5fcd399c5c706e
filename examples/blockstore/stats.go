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
	P50Micros float64 `json:"p50_us"`   // request to block in place (copy-out) or durable (copy-in)
	P99Micros float64 `json:"p99_us"`
	Retried   int     `json:"retried"`   // blocks asked for again because something went wrong
	TimedOut  int     `json:"timed_out"` // of these, for want of an answer
	Corrupt   int     `json:"corrupt"`   // of these, for a wrong checksum
}

// recorder collects the times of blocks; safe for concurrent use.
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

// retry counts a block that is asked for again.
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

// quantile is the smallest element that at least q of all do not exceed; sorted
// must be. 0 if there is none.
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
	Failed       uint64      `json:"failed"` // requests answered with an error that is not "ask again"
	Destinations []destStats `json:"destinations"`
}

// destStats compares operations issued with the high-water mark.
type destStats struct {
	Addr   string `json:"addr"`
	Issued uint64 `json:"issued"`
	HWM    uint64 `json:"hwm"`
}
