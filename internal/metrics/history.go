package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

// The status page shows the last ten minutes, whoever looks at it and since when. The daemon
// keeps them: some 24 KiB, and 0.6 KiB for each of at most MaxPeers peers.
const (
	historyEvery = 2 * time.Second
	historyKeep  = 300 // samples
	trailEvery   = 5   // samples in a point of a peer's trail
	trailKeep    = 60  // points
)

// seriesNames name the values of a sample. Rates are per second, times in seconds.
var seriesNames = [...]string{
	"sent_messages", "received_messages", "sent_bytes", "received_bytes", "rdma_out_bytes", "rdma_in_bytes", "local_messages",
	"message_p50", "message_p99", "operation_p50", "operation_p99",
	"unacked_messages", "operations", "congested_ports", "refused_messages", "held_bytes", "peers_up", "broken_connections",
}

// sample is the values of seriesNames at, or since the sample before, a moment.
type sample struct {
	at int64 // unix milliseconds
	v  [len(seriesNames)]float32
}

// History keeps the past of the figures. It reads the mappings only, so that the engine
// neither wakes nor waits for it.
type History struct {
	src *stats.Reader
	// lists is the rows of connections; nil if there are none.
	lists *stats.ListReader

	mu      sync.Mutex
	samples []sample
	peers   map[trailKey]*trail
	nth     int
	before  *stats.Snapshot
	at      time.Time
}

// trail is what went to and from a peer.
type trail struct {
	seen           int // History.nth
	sent, received uint64
	msgs           stats.Times
	sentRate       float64 // bytes per second since the last sample, RDMA included
	receivedRate   float64
	p99            time.Duration // of the messages acked since then
	points         []float32     // mean of both rates over trailEvery samples
	from           uint64        // sent and received at the last point
	since          time.Time     // the last point
}

// NewHistory returns an empty history of what r and lists show. lists may be nil.
func NewHistory(r *stats.Reader, lists *stats.ListReader) *History {
	return &History{src: r, lists: lists, peers: map[trailKey]*trail{}}
}

// Run samples until ctx ends.
func (h *History) Run(ctx context.Context) {
	tick := time.NewTicker(historyEvery)
	defer tick.Stop()
	h.sample(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.sample(now)
		}
	}
}

// sample takes one sample.
func (h *History) sample(now time.Time) {
	snap := h.src.Snapshot()
	var rows []stats.Peer
	torn := 0
	if h.lists != nil {
		rows, torn = h.lists.Peers()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.samples); n > 0 && now.UnixMilli() <= h.samples[n-1].at {
		h.samples = h.samples[:0] // the clock was set back
	}
	if h.before != nil {
		h.samples = append(h.samples, sampleOf(h.before, &snap, now, now.Sub(h.at).Seconds()))
		if len(h.samples) > historyKeep {
			h.samples = append(h.samples[:0], h.samples[1:]...)
		}
	}
	h.nth++
	for i := range rows {
		h.peer(&rows[i], now, now.Sub(h.at).Seconds())
	}
	for key, t := range h.peers {
		if t.seen != h.nth && torn == 0 {
			delete(h.peers, key)
		}
	}
	h.before, h.at = &snap, now
}

func sampleOf(before, snap *stats.Snapshot, now time.Time, seconds float64) sample {
	get := func(s *stats.Snapshot, c stats.Counter) uint64 { n, _ := s.Get(c.String()); return n }
	gauge := func(c stats.Counter) float32 { return float32(get(snap, c)) }
	rate := func(counters ...stats.Counter) float32 {
		var d uint64
		for _, c := range counters {
			d += get(snap, c) - min(get(before, c), get(snap, c))
		}
		return float32(float64(d) / max(seconds, 1e-3))
	}
	msgs, ops := snap.Messages.Since(&before.Messages), snap.Operations.Since(&before.Operations)
	quantile := func(t *stats.Times, q float64) float32 { return float32(t.Quantile(q).Seconds()) }
	return sample{now.UnixMilli(), [...]float32{
		rate(stats.SendQueued), rate(stats.RecvQueued), rate(stats.SendBytes), rate(stats.RecvBytes), rate(stats.SendRDMABytes, stats.ServedBytes), rate(stats.RecvRDMABytes, stats.PlacedBytes), rate(stats.LocalMessages),
		quantile(&msgs, 0.5), quantile(&msgs, 0.99), quantile(&ops, 0.5), quantile(&ops, 0.99),
		gauge(stats.QueuedMessages), gauge(stats.OpsOutstanding), gauge(stats.CongestedPorts), rate(stats.RefusedSent, stats.RefusedReceived), gauge(stats.HeldBytes), gauge(stats.PeersUp), rate(stats.ConnReset),
	}}
}

// peer brings the trail of a connection up to date.
func (h *History) peer(p *stats.Peer, now time.Time, seconds float64) {
	key := trailKey{p.Local, p.Remote, p.Lane, p.Path}
	sent, received := p.SentBytes+p.WrittenBytes+p.ServedBytes, p.GotBytes+p.ReadBytes+p.PlacedBytes
	t := h.peers[key]
	if t == nil || sent < t.sent || received < t.received { // new, or made anew
		if t == nil && len(h.peers) >= MaxPeers {
			return
		}
		h.peers[key] = &trail{seen: h.nth, sent: sent, received: received, msgs: p.Messages, from: sent + received, since: now}
		return
	}
	seconds = max(seconds, 1e-3)
	t.sentRate, t.receivedRate = float64(sent-t.sent)/seconds, float64(received-t.received)/seconds
	msgs := p.Messages.Since(&t.msgs)
	t.p99 = msgs.Quantile(0.99)
	t.seen, t.sent, t.received, t.msgs = h.nth, sent, received, p.Messages
	if h.nth%trailEvery == 0 {
		t.points = append(t.points, float32(float64(sent+received-t.from)/max(now.Sub(t.since).Seconds(), 1e-3)))
		if len(t.points) > trailKeep {
			t.points = append(t.points[:0], t.points[1:]...)
		}
		t.from, t.since = sent+received, now
	}
}

// trailKey names a connection.
type trailKey struct {
	local, remote [16]byte
	lane, path    uint8
}

// after returns the samples after a moment in unix milliseconds, each with the moment ahead
// of its values.
func (h *History) after(ms int64) [][]float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := [][]float64{}
	for i := range h.samples {
		s := &h.samples[i]
		if s.at <= ms {
			continue
		}
		row := []float64{float64(s.at)}
		for _, v := range s.v {
			row = append(row, float64(v))
		}
		out = append(out, row)
	}
	return out
}

// pagePeer is a peer as the page shows it.
type pagePeer struct {
	ctl.PeerInfo
	SentRate     float64       `json:"sent_bytes_per_second"` // RDMA included
	ReceivedRate float64       `json:"received_bytes_per_second"`
	RecentP99    time.Duration `json:"recent_p99_ns"` // of the messages acked lately, 0 for none
	Trail        []float32     `json:"trail"`         // of both rates, ten minutes at most
}

// of adds what the history knows of p.
func (h *History) of(p ctl.PeerInfo) pagePeer {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := pagePeer{PeerInfo: p, Trail: []float32{}}
	if t := h.peers[trailKey{p.Local.As16(), p.Remote.As16(), p.Lane, p.Path}]; t != nil {
		out.SentRate, out.ReceivedRate, out.RecentP99 = t.sentRate, t.receivedRate, t.p99
		out.Trail = append(out.Trail, t.points...)
	}
	return out
}
