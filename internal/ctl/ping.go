package ctl

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/lists"
)

// Ping is one answered ping.
type Ping struct {
	Addr netip.Addr `json:"addr"`
	// Path is that of lane 0 that the ping went by, of so many Paths. 0 Paths: an older daemon, or not known.
	Path  uint8         `json:"path,omitzero"`
	Paths uint8         `json:"paths,omitzero"`
	Size  int           `json:"size,omitzero"` // payload bytes of the ping; the answer has none
	RTT   time.Duration `json:"rtt_ns"`
}

// PingReport is a series of pings, as rdsctl reports it.
type PingReport struct {
	Addr     netip.Addr    `json:"addr"`
	Path     uint8         `json:"path,omitzero"`
	Paths    uint8         `json:"paths,omitzero"`
	Size     int           `json:"size,omitzero"`
	Sent     int           `json:"sent"`
	Received int           `json:"received"`
	Min      time.Duration `json:"rtt_min_ns"`
	P50      time.Duration `json:"rtt_p50_ns"`
	P99      time.Duration `json:"rtt_p99_ns"`
	Max      time.Duration `json:"rtt_max_ns"`
	Replies  []PingReply   `json:"replies"`
}

// To names whom the pings go to, with lane and path if several paths lead there.
func (r *PingReport) To() string {
	if max(r.Path+1, r.Paths) == 1 {
		return r.Addr.String()
	}
	return r.Addr.String() + " by lane " + LanePath{Path: r.Path}.String()
}

// PingReply is one ping of a series: its round trip, or why there was none.
type PingReply struct {
	Seq   int           `json:"seq"`
	RTT   time.Duration `json:"rtt_ns,omitzero"`
	Error *Error        `json:"error,omitempty"`
}

// maxReplies is how many replies are kept. An endless ping keeps the newest.
const maxReplies = 100_000

// Add counts one ping.
func (r *PingReport) Add(reply PingReply) {
	r.Sent++
	if reply.Error == nil {
		r.Received++
	}
	if len(r.Replies) >= maxReplies {
		r.Replies = slices.Delete(r.Replies, 0, len(r.Replies)-maxReplies/2)
	}
	r.Replies = append(r.Replies, reply)
}

// Summarize computes minimum, maximum and the nearest-rank percentiles of the replies that
// were kept.
func (r *PingReport) Summarize() {
	var rtts []time.Duration
	for _, reply := range r.Replies {
		if reply.Error == nil {
			rtts = append(rtts, reply.RTT)
		}
	}
	if len(rtts) == 0 {
		return
	}
	lists.Sort(rtts, cmp.Compare)
	rank := func(percent int) time.Duration { return rtts[max(0, (len(rtts)*percent+99)/100-1)] }
	r.Min, r.P50, r.P99, r.Max = rtts[0], rank(50), rank(99), rtts[len(rtts)-1]
}
