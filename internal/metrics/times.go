package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdsd/rdsd/internal/stats"
)

// The histograms of each peer have every fourth bound only: 256 peers would have 13,000
// series otherwise. All bounds are powers of 2 of a second.
var (
	peerMessageDesc   = desc("peer_message_seconds", "Time from the turn that took a message to the peer in until it was acked.", "local", "peer", "lane", "path")
	peerOperationDesc = desc("peer_operation_seconds", "Time from the post of an operation at the peer until its status was known.", "local", "peer", "lane", "path")
)

// timesHistogram has every nth bound of t.
func timesHistogram(d *prometheus.Desc, t *stats.Times, nth int, labels ...string) prometheus.Metric {
	bounds := map[float64]uint64{}
	var below uint64
	for i, n := range t.Counts {
		if below += n; i%nth == 0 && i < stats.TimeBuckets-1 {
			bounds[stats.TimeBound(i)] = below
		}
	}
	return prometheus.MustNewConstHistogram(d, below, float64(t.Sum)/1e9, bounds, labels...)
}
