package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/rdsd/rdsd/bench/worker"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/daemon"
)

// embeddedDaemon is rdsd within this program, so that it can be profiled. The program rdsd has
// no flags for profiles.
func embeddedDaemon(w *worker.Worker) error {
	cfg := config.Default()
	for _, k := range []string{"socket", "listen", "port", "crc", "spin", "tls.mode", "tls.cert", "tls.key", "tls.ca"} {
		if v := w.Get(k); v != "" {
			if err := cfg.Set(k, v); err != nil {
				return err
			}
		}
	}
	if err := cfg.Finish(os.Getuid(), os.Getenv); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d, err := daemon.New(cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	return d.Run(ctx)
}
