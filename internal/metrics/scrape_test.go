package metrics

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func gathering() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "test_total", Help: "a test"})
	c.Add(7)
	reg.MustRegister(c)
	return reg
}

func askFor(h http.Handler, encoding string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestScrapeEncodings(t *testing.T) {
	const want = "# HELP test_total a test\n# TYPE test_total counter\ntest_total 7\n"
	h := serveScrapes(gathering())
	for encoding, zipped := range map[string]bool{
		"": false, "gzip": true, "deflate, gzip;q=1.0": true, "gzip; q=0": false, "zstd": false, "gzipped": false,
	} {
		w := askFor(h, encoding)
		var body io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != zipped {
			t.Errorf("%q: gzip %v, want %v", encoding, got, zipped)
			continue
		}
		if zipped {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatalf("%q: %v", encoding, err)
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil || string(b) != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("%q: %v, %v, %q", encoding, w.Header(), err, b)
		}
	}
}

// TestScrapesAreBounded: scrapes beyond the bound are refused at once.
func TestScrapesAreBounded(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	inner := gathering()
	h := serveScrapes(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		entered <- struct{}{}
		<-leave
		return inner.Gather()
	}))
	codes := make(chan int, maxScrapes)
	for range maxScrapes {
		go func() { codes <- askFor(h, "").Code }()
		<-entered
	}
	if w := askFor(h, ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", w.Code)
	}
	close(leave)
	for range maxScrapes {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a scrape within the bound: %d", code)
		}
	}
}

func TestScrapeNothing(t *testing.T) {
	h := serveScrapes(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("no") }))
	if w := askFor(h, ""); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}
