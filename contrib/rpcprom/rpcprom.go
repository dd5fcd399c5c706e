package rpcprom

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rdsd/rdsd/rds/rpc"
)

// other is the label of the methods that have none of their own.
const other = "_OTHER"

// panicked is the outcome of a handler that did not return.
const panicked = "panicked"

// Options are the options of New. The zero value suits almost every program.
type Options struct {
	// Methods are names that have a label of their own from the start. A caller finds out
	// about any other when a server has not refused it, and a server has those of its
	// rpc.Methods.
	Methods []string
	// MaxMethods is how many methods have a label of their own on each side, besides
	// Methods; 0 means 100.
	MaxMethods int
	// Buckets are the upper bounds of the histograms of durations, in seconds, each above the
	// one before; nil means 13 from 10 µs to 10 s.
	Buckets []float64
}

// durations and sizes are the upper bounds of histograms.
var (
	durations = []float64{10e-6, 30e-6, 100e-6, 300e-6, 1e-3, 3e-3, 10e-3, 30e-3, 100e-3, 300e-3, 1, 3, 10}
	sizes     = prometheus.ExponentialBuckets(64, 8, 8) // to 128 MiB
)

// Metrics are the metrics of the servers and callers of a process: a collector for a registry.
// Its methods may be called from any goroutine.
type Metrics struct {
	server, caller side
	wait           *prometheus.HistogramVec
	running        *prometheus.GaugeVec
	waiting        prometheus.Gauge
	refused        *prometheus.CounterVec
	all            []prometheus.Collector
}

// side has what there is at both ends of calls.
type side struct {
	names             *names
	duration, in, out *prometheus.HistogramVec
}

// New makes Metrics, which the caller registers. Its error says which option is wrong.
func New(o Options) (*Metrics, error) {
	if o.Buckets == nil {
		o.Buckets = durations
	}
	for i, b := range o.Buckets {
		if math.IsNaN(b) || math.IsInf(b, 0) || i > 0 && b <= o.Buckets[i-1] {
			return nil, fmt.Errorf("rpcprom: Options.Buckets[%d] is %v: want numbers, each above the one before", i, b)
		}
	}
	switch {
	case len(o.Buckets) == 0:
		return nil, fmt.Errorf("rpcprom: Options.Buckets is empty: want at least one bound, or nil for those of the package")
	case o.MaxMethods < 0:
		return nil, fmt.Errorf("rpcprom: Options.MaxMethods is %d: want a number above 0, or 0 for 100", o.MaxMethods)
	case o.MaxMethods == 0:
		o.MaxMethods = 100
	}
	m := &Metrics{}
	histogram := func(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rds_rpc_" + name, Help: help, Buckets: bounds}, labels)
		m.all = append(m.all, h)
		return h
	}
	m.server = side{newNames(&o),
		histogram("server_duration_seconds", "How long handlers ran.", o.Buckets, "method", "outcome"),
		histogram("server_request_bytes", "Sizes of the requests that handlers got.", sizes, "method"),
		histogram("server_answer_bytes", "Sizes of the answers of handlers.", sizes, "method")}
	m.caller = side{newNames(&o),
		histogram("caller_duration_seconds", "How long calls took.", o.Buckets, "method", "outcome"),
		histogram("caller_request_bytes", "Sizes of the requests of calls.", sizes, "method"),
		histogram("caller_answer_bytes", "Sizes of the answers that calls got.", sizes, "method")}
	m.wait = histogram("server_wait_seconds", "How long requests waited for a handler after the host had them.", o.Buckets, "method")
	m.running = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rds_rpc_server_running", Help: "Handlers that run."}, []string{"method"})
	m.waiting = prometheus.NewGauge(prometheus.GaugeOpts{Name: "rds_rpc_caller_running", Help: "Calls that wait for their answers."})
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rds_rpc_server_refused_total", Help: "Requests that the server refused, so that no handler got them."}, []string{"outcome"})
	m.all = append(m.all, m.running, m.waiting, m.refused)
	return m, nil
}

// Describe is part of prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(to)
	}
}

// Collect is part of prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(to)
	}
}

// Server is an rpc.Interceptor for rpc.Server.Use.
func (m *Metrics) Server(next rpc.Handler) rpc.Handler {
	return func(ctx context.Context, r *rpc.Request) (answer []byte, err error) {
		method, in, began := m.server.names.admit(r.Method), len(r.Body), time.Now()
		m.wait.WithLabelValues(method).Observe(max(0, began.Sub(r.Arrived).Seconds()))
		running := m.running.WithLabelValues(method)
		running.Inc()
		outcome := panicked
		defer func() {
			running.Dec()
			m.server.done(method, outcome, began, in, len(answer))
		}()
		answer, err = next(ctx, r)
		outcome = r.Outcome(ctx, err)
		return answer, err
	}
}

// Refused is a function for rpc.ServerOptions.
func (m *Metrics) Refused(_ *rpc.Request, err error) {
	m.refused.WithLabelValues(rpc.Outcome(err)).Inc()
}

// Caller is an rpc.Interceptor for rpc.Caller.Use.
func (m *Metrics) Caller(next rpc.Handler) rpc.Handler {
	return func(ctx context.Context, r *rpc.Request) (answer []byte, err error) {
		in, began, outcome := len(r.Body), time.Now(), panicked
		m.waiting.Inc()
		defer func() {
			m.waiting.Dec()
			label := m.caller.names.admit
			if outcome == rpc.Outcome(rpc.ErrNoMethod) {
				label = m.caller.names.known
			}
			m.caller.done(label(r.Method), outcome, began, in, len(answer))
		}()
		answer, err = next(ctx, r)
		outcome = r.Outcome(ctx, err)
		return answer, err
	}
}

func (s *side) done(method, outcome string, began time.Time, in, out int) {
	s.duration.WithLabelValues(method, outcome).Observe(time.Since(began).Seconds())
	s.in.WithLabelValues(method).Observe(float64(in))
	if outcome == rpc.Outcome(nil) {
		s.out.WithLabelValues(method).Observe(float64(out))
	}
}

// names are the methods with a label of their own.
type names struct {
	mu   sync.RWMutex
	has  map[string]string // label by name
	room int
}

func newNames(o *Options) *names {
	n := &names{has: map[string]string{}, room: len(o.Methods)}
	for _, method := range o.Methods {
		n.admit(method)
	}
	n.room = o.MaxMethods
	return n
}

// known returns the label of a method.
func (n *names) known(method string) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if label, ok := n.has[method]; ok {
		return label
	}
	return other
}

// admit is known for a method that gets a label if there is room.
func (n *names) admit(method string) string {
	if label := n.known(method); label != other {
		return label
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	label, ok := n.has[method]
	switch {
	case ok:
	case n.room == 0:
		label = other
	default:
		label = strings.ToValidUTF8(method, "\uFFFD") // a method is any bytes
		n.has[method] = label
		n.room--
	}
	return label
}
