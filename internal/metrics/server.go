package metrics

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Handler answers scrapes, probes (/livez, /readyz, /healthz) and the status page at /. It
// uses src, the Go runtime and a registry of its own.
func Handler(src Source) http.Handler {
	if src.History == nil {
		src.History = NewHistory(src.Stats, nil)
	}
	reg := prometheus.NewRegistry()
	c := newCollector(src)
	reg.MustRegister(c, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", local(serveScrapes(reg)))
	(&pages{src: src, c: c}).register(mux)
	return mux
}

// Server is the listener for metrics.
type Server struct {
	l     net.Listener
	crowd *crowd
}

// NewServer returns a Server on a listening TCP socket, which it closes in the end.
func NewServer(l net.Listener) *Server { return &Server{l, &crowd{}} }

// Addr is the address listened on.
func (s *Server) Addr() netip.AddrPort { return s.l.Addr().(*net.TCPAddr).AddrPort() }

// Serve answers with h until ctx ends, by HTTPS unless secure is nil. When it returns, the listener is closed and h no
// longer runs, so the mapping that h reads may be unmapped.
func (s *Server) Serve(ctx context.Context, h http.Handler, secure *tls.Config, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.RWMutex // read-locked by each request that uses h
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer hasAsked(r.Context())()
			running.RLock()
			defer running.RUnlock()
			if ctx.Err() == nil {
				h.ServeHTTP(w, r)
			}
		}),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withGuest,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	srv.SetKeepAlivesEnabled(false) // a request more could wait behind an answer that is not read
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	var l net.Listener = counted{s.l, s.crowd}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	err := srv.Serve(l)
	cancel()
	running.Lock()
	defer running.Unlock()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Settle waits until all connections that were accepted have their answers, at most so long.
// The caller sees to it that no more are accepted.
func (s *Server) Settle(most time.Duration) { s.crowd.settle(most) }

// Close closes a socket that Serve was not called for.
func (s *Server) Close() error { return s.l.Close() }
