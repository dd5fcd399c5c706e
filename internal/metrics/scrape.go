package metrics

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// maxScrapes bounds the scrapes that are answered at the same time.
const maxScrapes = 4

// serveScrapes answers with what g gathers, as text, plain or gzip. Series that cannot be
// gathered are left out. (promhttp does this too, but links half a megabyte for other
// encodings.)
func serveScrapes(g prometheus.Gatherer) http.Handler {
	room := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		default:
			http.Error(w, "too many scrapes at a time", http.StatusServiceUnavailable)
			return
		}
		families, err := g.Gather()
		if len(families) == 0 && err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		h.Set("Vary", "Accept-Encoding")
		var out io.Writer = w
		if takesGzip(r.Header.Get("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close() // the client may have gone
			out = z
		}
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
				return // the client has gone
			}
		}
	})
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
