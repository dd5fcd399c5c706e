package metrics

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// TestSecure: with TLS a scrape needs a certificate of the authority.
func TestSecure(t *testing.T) {
	src, _ := source(t, noPeers)
	s := listen(t)
	ca := tlstest.NewCA(t)
	secure := ca.Config(t, tlstest.IPs("127.0.0.1"))
	secure.ClientAuth = tls.RequireAndVerifyClientCert
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, Handler(src), secure, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	get := func(scheme string, cfg *tls.Config) (string, error) {
		c := http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
		resp, err := c.Get(scheme + "://" + s.Addr().String() + "/metrics")
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp.Status + " " + string(b), err
	}
	prometheus := ca.Config(t, tlstest.Name("prometheus.test"))
	if body, err := get("https", prometheus); err != nil || !strings.HasPrefix(body, "200 ") || !strings.Contains(body, "\nrdsd_build_info{") {
		t.Errorf("with a certificate: %v, %.200s", err, body)
	}
	none := prometheus.Clone()
	none.Certificates = nil
	foreign := tlstest.NewCA(t).Config(t, tlstest.Name("prometheus.test"))
	foreign.RootCAs = prometheus.RootCAs
	for name, cfg := range map[string]*tls.Config{"no certificate": none, "another authority": foreign} {
		if body, err := get("https", cfg); err == nil {
			t.Errorf("%s: %.200s", name, body)
		}
	}
	if body, err := get("http", nil); err == nil && strings.Contains(body, "rdsd_") {
		t.Errorf("without TLS: %.200s", body)
	}
}
