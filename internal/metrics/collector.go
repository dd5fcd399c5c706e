// Package metrics serves the daemon's figures to Prometheus. It reads the statistics
// mapping and no engine state, so that it answers while the engine is stuck. Only the
// series of peers, of users and of RDMA devices ask the daemon. If the daemon does not answer, they are left
// out, and an error is counted.
package metrics

import (
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

// MaxPeers bounds the peers with series of their own. The others, from the highest address
// down, are added up as peer="other".
const MaxPeers = 256

// Source is what the collector reads.
type Source struct {
	Stats *stats.Reader
	// Peers is the method of ctl.Backend. It may block.
	Peers func() ([]ctl.PeerInfo, error)
	// Users returns what each user has and may have. It may block.
	Users func() ([]ctl.User, error)
	// Devices lists the RDMA devices of the host. It may block. It may be nil.
	Devices func() (ctl.Devices, error)
	// Admits returns an error if processes that connect to the control socket are not
	// served. If it blocks, they are not served either. It may be nil.
	Admits func() error
	// History is what the status page shows of the past. If it is nil, the page has none.
	History *History
	// Stalls and Events are the methods of ctl.Inspector. Stalls may block. Both may be nil.
	Stalls func() ([]ctl.StallInfo, error)
	Events func(v ctl.View, after uint64) ([]ctl.EventInfo, bool, error)
	// Congested and Errors are methods of ctl.Inspector, too. Congested may block. Both may be nil.
	Congested func(v ctl.View) ([]ctl.CongestedInfo, bool, error)
	Errors    func(v ctl.View) ([]ctl.ErrorInfo, bool, error)
	// Warnings are those of the daemon's status. It does not block. It may be nil.
	Warnings func() []string
	// TLS is the state of TLS. It does not block. It may be nil.
	TLS     func() ctl.TLS
	Version string
}

// collector implements prometheus.Collector.
type collector struct {
	src   Source
	words []word
	peers []peerMetric

	askPeers asker[[]ctl.PeerInfo]
	askUsers asker[[]ctl.User]

	askDevices asker[ctl.Devices]

	askCongested asker[[]ctl.CongestedInfo]
}

// word is one word of the mapping.
type word struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	unit float64 // its value in base units
}

var (
	infoDesc      = desc("build_info", "Constant 1; what runs here.", "version", "go")
	startDesc     = desc("start_time_seconds", "When the daemon started, in unix time.")
	stateDesc     = desc("engine_state", "1 for the state the engine last published.", "state")
	lateDesc      = desc("engine_late_seconds", "How long ago the engine published, while it should turn.")
	turnDesc      = desc("engine_turn_seconds", "Duration of the engine's turns.")
	turnMaxDesc   = desc("engine_turn_max_seconds", "The longest turn so far.")
	errorsDesc    = desc("collector_errors_total", "Scrapes that lack a part.", "collector")
	truncatedDesc = desc("metrics_truncated_peers", "Peers without series of their own.")
	usedDesc      = desc("user_used", "What the processes of a user, or of an account of quota.accounts, have of a resource.", "uid", "account", "resource")
	messageDesc   = desc("message_seconds", "Time from the turn that took a message in until it was acked.")
	operationDesc = desc("operation_seconds", "Time from the post of an operation until its status was known.")
	quotaDesc     = desc("user_quota", "What they may have of it; +Inf: no quota.", "uid", "account", "resource")
	noUserDesc    = desc("metrics_truncated_users", "Users without series of their own.")
)

// desc is used at many places, so it is not inlined.
//
//go:noinline
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rdsd_"+name, help, labels, nil)
}

func newCollector(src Source) *collector {
	c := &collector{src: src, peers: peerMetrics()}
	c.askPeers.f, c.askUsers.f, c.askDevices.f = src.Peers, src.Users, src.Devices
	c.askCongested.f = func() ([]ctl.CongestedInfo, error) {
		list, _, err := src.Congested(ctl.View{Limit: ctl.DefaultLimit, May: func(uint32) bool { return false }})
		return list, err
	}
	help := map[string]string{}
	for i := range stats.NumCounters {
		help[i.String()] = i.Help()
	}
	for _, d := range src.Stats.Table() {
		name := strings.TrimPrefix(d.Name, "rdsd_")
		w := word{kind: prometheus.GaugeValue, unit: 1}
		if n, ok := strings.CutSuffix(name, "_ns"); ok {
			name, w.unit = n+"_seconds", 1e-9
		}
		if !d.Gauge {
			name += "_total"
			w.kind = prometheus.CounterValue
		}
		w.desc = desc(name, help[d.Name])
		c.words = append(c.words, w)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, w := range c.words {
		ch <- w.desc
	}
	for _, p := range c.peers {
		ch <- p.desc
	}
	for _, d := range []*prometheus.Desc{infoDesc, startDesc, stateDesc, lateDesc, turnDesc, turnMaxDesc, errorsDesc, truncatedDesc, usedDesc, quotaDesc, noUserDesc, securedDesc, refusedDesc, expiryDesc,
		portCounterDesc, portUpDesc, noDeviceDesc, messageDesc, operationDesc, peerMessageDesc, peerOperationDesc, findingDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	snap := c.src.Stats.Snapshot()
	for i, w := range c.words {
		ch <- prometheus.MustNewConstMetric(w.desc, w.kind, float64(snap.Values[i].Value)*w.unit)
	}
	gauge(infoDesc, 1, c.src.Version, runtime.Version())
	gauge(startDesc, float64(snap.Start)/1e9)
	gauge(lateDesc, snap.Late(time.Now()).Seconds())
	gauge(turnMaxDesc, snap.Turns.Max.Seconds())
	for s := stats.Starting; s <= stats.Stopped; s++ {
		v := 0.0
		if s == snap.State {
			v = 1
		}
		gauge(stateDesc, v, s.String())
	}
	ch <- turnHistogram(&snap.Turns)
	ch <- timesHistogram(messageDesc, &snap.Messages, 1)
	ch <- timesHistogram(operationDesc, &snap.Operations, 1)

	if c.src.TLS != nil {
		collectTLS(ch, c.src.TLS())
	}
	peers, _ := c.askPeers.ask()
	gauge(truncatedDesc, float64(c.collectPeers(ch, peers)))
	users, _ := c.askUsers.ask()
	gauge(noUserDesc, float64(collectUsers(ch, users)))
	now := time.Now()
	_, found := c.judge(now, &snap, peers, users)
	collectFindings(ch, now, found)
	if c.src.Devices != nil {
		devices, _ := c.askDevices.ask()
		gauge(noDeviceDesc, float64(collectDevices(ch, devices.Devices)))
		ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(c.askDevices.failed()), "devices")
	}
	ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(c.askPeers.failed()), "peers")
	ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(c.askUsers.failed()), "users")
}

// turnHistogram leaves out every other bound, and the bounds that nobody needs.
func turnHistogram(h *stats.Histogram) prometheus.Metric {
	bounds := map[float64]uint64{}
	var below, total uint64
	for i, n := range h.Counts {
		below += n
		if d := stats.Bound(i); d > 100*time.Nanosecond && d < 10*time.Second && i%2 == 0 {
			bounds[d.Seconds()] = below
		}
	}
	total = below
	return prometheus.MustNewConstHistogram(turnDesc, total, h.Sum.Seconds(), bounds)
}
