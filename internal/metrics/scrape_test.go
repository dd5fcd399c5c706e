package metrics

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

// TestScrapesAreBounded: a scrape beyond the bound waits for its turn, and is refused if none
// comes.
func TestScrapesAreBounded(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	inner := gathering()
	h := serveScrapes(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		entered <- struct{}{}
		<-leave
		return inner.Gather()
	}))
	codes := make(chan int, maxScrapes+1)
	for range maxScrapes {
		go func() { codes <- askFor(h, "").Code }()
		<-entered
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequestWithContext(gone, "GET", "/metrics", nil)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one that does not wait: %d", w.Code)
	}
	go func() { codes <- askFor(h, "").Code }()
	go func() { <-entered }()
	close(leave)
	for range maxScrapes + 1 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a scrape that had its turn: %d", code)
		}
	}
}

func TestScrapeNothing(t *testing.T) {
	h := serveScrapes(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("no") }))
	if w := askFor(h, ""); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// reluctant is a client that takes nothing of its answer until it is let go.
type reluctant struct {
	*httptest.ResponseRecorder
	wrote, let chan struct{}
}

func (r reluctant) Write(b []byte) (int, error) {
	r.wrote <- struct{}{}
	<-r.let
	return r.ResponseRecorder.Write(b)
}

// TestScrapeUnread: scrapes whose answers nobody takes, plain or gzip, keep no other out.
func TestScrapeUnread(t *testing.T) {
	h := serveScrapes(gathering())
	var all sync.WaitGroup
	let := make(chan struct{})
	for i := range 3 * maxScrapes {
		r := httptest.NewRequest("GET", "/metrics", nil)
		if i%2 == 0 {
			r.Header.Set("Accept-Encoding", "gzip")
		}
		w := reluctant{httptest.NewRecorder(), make(chan struct{}, 8), let}
		all.Go(func() { h.ServeHTTP(w, r) })
		<-w.wrote
	}
	if w := askFor(h, ""); w.Code != http.StatusOK {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	close(let)
	all.Wait()
}
