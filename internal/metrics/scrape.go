package metrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// maxScrapes bounds how many scrapes are gathered at the same time.
const maxScrapes = 4

var errBusy = errors.New("too many scrapes at a time")

// scrapes answers with what g gathers, as text, plain or gzip.
type scrapes struct {
	g    prometheus.Gatherer
	room chan struct{} // has one element for each scrape that is being gathered
}

func serveScrapes(g prometheus.Gatherer) http.HandlerFunc {
	return (&scrapes{g, make(chan struct{}, maxScrapes)}).serve
}

func (s *scrapes) serve(w http.ResponseWriter, r *http.Request) {
	zipped, err := s.gather(r.Context())
	switch {
	case errors.Is(err, errBusy):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	h.Set("Vary", "Accept-Encoding")
	if takesGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		_, _ = w.Write(zipped) // the client may have gone
		return
	}
	if z, err := gzip.NewReader(bytes.NewReader(zipped)); err == nil {
		_, _ = io.Copy(w, z)
	}
}

// gather returns the text, compressed, so that answers which wait for their clients take
// little memory and no room of other scrapes. Scrapes take turns, and one waits askTimeout at
// most. Series that cannot be gathered are left out. (promhttp does this too, but links half a
// megabyte for other encodings.)
func (s *scrapes) gather(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case s.room <- struct{}{}:
		defer func() { <-s.room }()
	case <-ctx.Done():
		return nil, errBusy
	}
	families, err := s.g.Gather()
	if len(families) == 0 && err != nil {
		return nil, err
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(z, f); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// takesGzip reads an Accept-Encoding header.
func takesGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		q = strings.ReplaceAll(q, " ", "")
		if strings.TrimSpace(name) == "gzip" && q != "q=0" && q != "q=0.0" {
			return true
		}
	}
	return false
}
