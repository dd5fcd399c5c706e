package metrics

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/stats"
)

// peerMetric is one series that each peer has.
type peerMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(*ctl.PeerInfo) float64
	most bool // peer="other" has the largest value, not the sum
}

func peerMetrics() []peerMetric {
	metric := func(name, help string, kind prometheus.ValueType, get func(*ctl.PeerInfo) float64) peerMetric {
		return peerMetric{desc: desc("peer_"+name, help, "local", "peer", "lane", "path"), kind: kind, get: get}
	}
	gauge := func(name, help string, get func(*ctl.PeerInfo) float64) peerMetric {
		return metric(name, help, prometheus.GaugeValue, get)
	}
	most := func(name, help string, get func(*ctl.PeerInfo) float64) peerMetric {
		m := gauge(name, help, get)
		m.most = true
		return m
	}
	counter := func(name, help string, get func(*ctl.PeerInfo) float64) peerMetric {
		return metric(name, help, prometheus.CounterValue, get)
	}
	return []peerMetric{
		gauge("up", "1 while the connection is up.", func(p *ctl.PeerInfo) float64 {
			if p.State == "up" {
				return 1
			}
			return 0
		}),
		gauge("queued_messages", "Messages not sent yet.", func(p *ctl.PeerInfo) float64 { return float64(p.QueuedMessages) }),
		gauge("queued_bytes", "Their payload.", func(p *ctl.PeerInfo) float64 { return float64(p.QueuedBytes) }),
		gauge("unacked_messages", "Messages sent and not acked yet.", func(p *ctl.PeerInfo) float64 { return float64(p.UnackedMessages) }),
		gauge("unacked_bytes", "Their payload.", func(p *ctl.PeerInfo) float64 { return float64(p.UnackedBytes) }),
		gauge("send_credits", "SENDs the peer can take now.", func(p *ctl.PeerInfo) float64 { return float64(p.SendCredits) }),
		most("rtt_seconds", "Smoothed round-trip time between the daemons; 0: not measured.", func(p *ctl.PeerInfo) float64 { return p.RTT.Seconds() }),
		most("oldest_unacked_seconds", "Age of the oldest message that is not acked, sent or not.", func(p *ctl.PeerInfo) float64 { return p.OldestUnacked.Seconds() }),
		counter("sent_messages_total", "Messages sent, again ones included.", func(p *ctl.PeerInfo) float64 { return float64(p.Sent) }),
		counter("sent_bytes_total", "Their payload.", func(p *ctl.PeerInfo) float64 { return float64(p.SentBytes) }),
		counter("received_messages_total", "Messages received.", func(p *ctl.PeerInfo) float64 { return float64(p.Received) }),
		counter("received_bytes_total", "Their payload.", func(p *ctl.PeerInfo) float64 { return float64(p.ReceivedBytes) }),
		counter("rdma_written_bytes_total", "Bytes of our RDMA writes.", func(p *ctl.PeerInfo) float64 { return float64(p.WrittenBytes) }),
		counter("rdma_read_bytes_total", "Bytes of our RDMA reads.", func(p *ctl.PeerInfo) float64 { return float64(p.ReadBytes) }),
		counter("rdma_placed_bytes_total", "Bytes that RDMA writes of the peer have written here.", func(p *ctl.PeerInfo) float64 { return float64(p.PlacedBytes) }),
		counter("rdma_served_bytes_total", "Bytes that RDMA reads of the peer have read here.", func(p *ctl.PeerInfo) float64 { return float64(p.ServedBytes) }),
		counter("resets_total", "Connections to the peer that ended.", func(p *ctl.PeerInfo) float64 { return float64(p.Resets) }),
		counter("retransmitted_messages_total", "Messages sent again after a reconnect.", func(p *ctl.PeerInfo) float64 { return float64(p.Retransmitted) }),
		counter("dropped_ops_total", "Operations that ended DROPPED.", func(p *ctl.PeerInfo) float64 { return float64(p.DroppedOps) }),
		counter("unknown_ops_total", "Operations that ended UNKNOWN.", func(p *ctl.PeerInfo) float64 { return float64(p.UnknownOps) }),
		counter("lost_messages_total", "Messages lost by a restart of the peer.", func(p *ctl.PeerInfo) float64 { return float64(p.Lost) }),
	}
}

// series is the values of one set of labels.
type series struct {
	local, peer, lane, path string
	values                  []float64
	msgs, ops               stats.Times
}

// collectPeers sends the peers' series. It returns how many peers have no series of their
// own.
func (c *collector) collectPeers(ch chan<- prometheus.Metric, peers []ctl.PeerInfo) (truncated int) {
	peers = slices.Clone(peers)
	lists.Sort(peers, func(a, b ctl.PeerInfo) int {
		return cmp.Or(a.Remote.Compare(b.Remote), a.Local.Compare(b.Local), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Path, b.Path))
	})
	// Each connection has labels of its own.
	own := min(len(peers), MaxPeers)
	for i := range peers[:own] {
		p := &peers[i]
		s := series{local: p.Local.String(), peer: p.Remote.String(), lane: strconv.Itoa(int(p.Lane)), path: strconv.Itoa(int(p.Path))}
		c.add(&s, p)
		c.send(ch, &s)
	}
	if own == len(peers) {
		return 0
	}
	other := series{peer: "other"}
	for i := range peers[own:] {
		c.add(&other, &peers[own+i])
	}
	c.send(ch, &other)
	return len(peers) - own
}

func (c *collector) add(s *series, p *ctl.PeerInfo) {
	if s.values == nil {
		s.values = make([]float64, len(c.peers))
	}
	for i, m := range c.peers {
		if v := m.get(p); !m.most {
			s.values[i] += v
		} else {
			s.values[i] = max(s.values[i], v)
		}
	}
	msgs, ops := p.MessageTime.Stats(), p.OperationTime.Stats()
	s.msgs.Merge(&msgs)
	s.ops.Merge(&ops)
}

func (c *collector) send(ch chan<- prometheus.Metric, s *series) {
	for i, m := range c.peers {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, s.values[i], s.local, s.peer, s.lane, s.path)
	}
	ch <- timesHistogram(peerMessageDesc, &s.msgs, 4, s.local, s.peer, s.lane, s.path)
	ch <- timesHistogram(peerOperationDesc, &s.ops, 4, s.local, s.peer, s.lane, s.path)
}
