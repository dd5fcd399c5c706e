package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdsd/rdsd/internal/ctl"
)

var (
	securedDesc = desc("tls_handshakes_total", "TLS handshakes with peers that succeeded.")
	refusedDesc = desc("tls_handshakes_refused_total",
		"Incoming connections turned away: certificate (or another failure of TLS), plain (TLS on one side only), limited (too many).", "reason")
	expiryDesc = desc("tls_certificate_expiry_time_seconds",
		"When the first certificate of this host's chain expires, in unix time. Without a certificate there is no such series.")
)

// collectTLS sends the series of TLS. It does not ask the engine.
func collectTLS(ch chan<- prometheus.Metric, t ctl.TLS) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(securedDesc, t.Secured)
	count(refusedDesc, t.Failed, "certificate")
	count(refusedDesc, t.Plain, "plain")
	count(refusedDesc, t.Limited, "limited")
	if !t.Expires.IsZero() {
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(t.Expires.Unix()))
	}
}
