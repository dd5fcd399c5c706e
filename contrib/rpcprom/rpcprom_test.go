package rpcprom_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/rdsd/rdsd/contrib/rpcprom"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// pair is a server and a caller with their metrics.
type pair struct {
	server *rpc.Server
	caller *rpc.Caller
	call   func(method string, body []byte) error
	scrape func() (text string, values map[string]float64)
}

func newPair(t *testing.T, methods rpc.Methods, so rpc.ServerOptions, o rpcprom.Options) *pair {
	t.Helper()
	calls, err := rpcprom.New(o)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(calls)
	web := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(web.Close)

	d := rdstest.StartDaemons(t, 1)[0]
	s := d.Bind(t, d.Open(t), 0)
	so.Refused = calls.Refused
	p := &pair{server: rpc.NewServer(s, methods, so), caller: rpc.NewCaller(d.Bind(t, d.Open(t), 0), rpc.CallerOptions{})}
	p.server.Use(calls.Server)
	p.caller.Use(calls.Caller)
	ended := make(chan error)
	go func() { ended <- p.server.Serve(context.Background()) }()
	t.Cleanup(func() {
		_ = p.caller.Close()
		if err := p.server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-ended
	})
	p.call = func(method string, body []byte) error {
		_, err := p.caller.Call(soon(t), s.LocalAddrPort(), method, body)
		return err
	}
	p.scrape = func() (string, map[string]float64) {
		t.Helper()
		answer, err := web.Client().Get(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != 200 {
			t.Fatalf("scrape: %s, %v\n%s", answer.Status, err, b)
		}
		return string(b), values(t, string(b))
	}
	return p
}

// values are the values of a scrape: those of counters and gauges, the counts of histograms, and
// their sums by the name with _sum.
func values(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			key := strings.TrimPrefix(name, "rds_rpc_") + " " + strings.Join(labels, " ")
			all[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if h := m.Histogram; h != nil {
				all[strings.Replace(key, " ", "_sum ", 1)] = h.GetSampleSum()
			}
		}
	}
	return all
}

// handlers are methods of all kinds. The one named running says so in its channel, and waits for
// an answer there.
func handlers(running chan struct{}) rpc.Methods {
	return rpc.Methods{
		"echo":      func(_ context.Context, r *rpc.Request) ([]byte, error) { return r.Body, nil },
		"fail":      func(context.Context, *rpc.Request) ([]byte, error) { return nil, errors.New("failed") },
		"panic":     func(context.Context, *rpc.Request) ([]byte, error) { panic("at the disco") },
		"goexit":    func(context.Context, *rpc.Request) ([]byte, error) { runtime.Goexit(); return nil, nil },
		"running":   func(context.Context, *rpc.Request) ([]byte, error) { running <- struct{}{}; <-running; return nil, nil },
		"by\xfftes": func(context.Context, *rpc.Request) ([]byte, error) { return []byte("odd"), nil },
	}
}

// TestScrape: what a scrape has of calls of all kinds, and that promtool's linter has nothing to
// say about it.
func TestScrape(t *testing.T) {
	running := make(chan struct{})
	p := newPair(t, handlers(running), rpc.ServerOptions{MaxRequest: 10000, Log: slog.New(slog.DiscardHandler)}, rpcprom.Options{})
	for _, c := range []struct {
		method string
		size   int
		word   string
	}{
		{"echo", 0, "ok"}, {"echo", 10000, "ok"}, {"fail", 3, "failed"}, {"panic", 0, "failed"}, {"goexit", 0, "failed"},
		{"by\xfftes", 5, "ok"}, {"echo", 10001, "too_large"}, {"none", 0, "no_method"}, {rpc.MethodHealth, 0, "ok"},
	} {
		if err := p.call(c.method, make([]byte, c.size)); rpc.Outcome(err) != c.word {
			t.Fatalf("%q: %v, want %s", c.method, err, c.word)
		}
	}
	ended := make(chan error)
	go func() { ended <- p.call("running", nil) }()
	<-running
	_, during := p.scrape()
	running <- struct{}{}
	if err := <-ended; err != nil || during["server_running running"] != 1 || during["caller_running "] != 1 {
		t.Errorf("while a handler runs: %v, %v", during, err)
	}
	text, got := p.scrape()
	for want, n := range map[string]float64{
		"server_duration_seconds echo ok":          2,
		"server_duration_seconds fail failed":      1,
		"server_duration_seconds panic panicked":   1,
		"server_duration_seconds goexit panicked":  1,
		"server_duration_seconds by\uFFFDtes ok":   1,
		"server_duration_seconds rpc.health ok":    1,
		"server_wait_seconds echo":                 2,
		"server_wait_seconds panic":                1,
		"server_request_bytes echo":                2,
		"server_request_bytes_sum echo":            10000,
		"server_request_bytes_sum fail":            3,
		"server_answer_bytes_sum echo":             10000,
		"server_answer_bytes_sum by\uFFFDtes":      3,
		"server_running echo":                      0,
		"server_running panic":                     0,
		"server_running goexit":                    0,
		"server_refused_total no_method":           1,
		"server_refused_total too_large":           1,
		"caller_duration_seconds echo ok":          2,
		"caller_duration_seconds echo too_large":   1,
		"caller_duration_seconds panic failed":     1,
		"caller_duration_seconds _OTHER no_method": 1,
		"caller_request_bytes_sum echo":            20001,
		"caller_answer_bytes_sum echo":             10000,
		"caller_running ":                          0,
	} {
		if v, ok := got[want]; !ok || v != n {
			t.Errorf("%q is %v, %v, want %v", want, v, ok, n)
		}
	}
	for key := range got {
		if strings.Contains(key, "answer_bytes fail") || strings.Contains(key, "none") {
			t.Errorf("there is a %q", key)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	for _, problem := range problems {
		t.Errorf("promlint: %s: %s", problem.Metric, problem.Text)
	}
	if err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestMethods: whatever methods are called, few have a label, and those that were named have
// theirs.
func TestMethods(t *testing.T) {
	methods := rpc.Methods{"named": nil}
	for i := range 20 {
		methods[fmt.Sprint("m", i)] = nil
	}
	for name := range methods {
		methods[name] = func(context.Context, *rpc.Request) ([]byte, error) { return nil, nil }
	}
	p := newPair(t, methods, rpc.ServerOptions{}, rpcprom.Options{Methods: []string{"named"}, MaxMethods: 3})
	for i := range 40 { // m20 and so on are refused
		if err := p.call(fmt.Sprint("m", i), nil); (err == nil) != (i < 20) {
			t.Fatal(err)
		}
	}
	if err := p.call("named", nil); err != nil {
		t.Fatal(err)
	}
	_, got := p.scrape()
	for want, n := range map[string]float64{
		"server_duration_seconds m2 ok":            1,
		"server_duration_seconds _OTHER ok":        17,
		"server_duration_seconds named ok":         1,
		"server_refused_total no_method":           20,
		"caller_duration_seconds m2 ok":            1,
		"caller_duration_seconds _OTHER ok":        17,
		"caller_duration_seconds _OTHER no_method": 20,
		"caller_duration_seconds named ok":         1,
	} {
		if got[want] != n {
			t.Errorf("%q is %v, want %v", want, got[want], n)
		}
	}
	for key := range got {
		if strings.HasPrefix(key, "caller_duration_seconds m3") {
			t.Errorf("there is a %q", key)
		}
	}
}

// TestOptions: an option that is wrong is an error that names it, at once and not at the first
// call.
func TestOptions(t *testing.T) {
	for want, o := range map[string]rpcprom.Options{
		"Options.Buckets[1] is 1":   {Buckets: []float64{1, 1}},
		"Options.Buckets[0] is NaN": {Buckets: []float64{math.NaN()}},
		"Options.Buckets is empty":  {Buckets: []float64{}},
		"Options.MaxMethods is -1":  {MaxMethods: -1},
	} {
		if _, err := rpcprom.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	p := newPair(t, handlers(nil), rpc.ServerOptions{}, rpcprom.Options{Buckets: []float64{0.5, 60}})
	if err := p.call("echo", nil); err != nil {
		t.Fatal(err)
	}
	if text, _ := p.scrape(); !strings.Contains(text, `rds_rpc_caller_duration_seconds_bucket{method="echo",outcome="ok",le="60"} 1`) {
		t.Errorf("buckets of the options:\n%s", text)
	}
}
