package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/daemon"
	"github.com/rdsd/rdsd/rds/embedded"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// daemonWithin starts a daemon in this process, for a socket at the address. It ends with the process, and
// the bench removes its control socket.
func daemonWithin(w *worker.Worker, at netip.Addr) (*embedded.Daemon, error) {
	return embedded.Start(embedded.Options{Listen: []netip.Addr{at}, Socket: w.Get("socket"),
		Set: map[string]string{"port": w.Get("embedded"), "crc": w.Get("daemoncrc"), "spin": w.Get("daemonspin")}})
}

// profiledDaemon is rdsd within this program, so that it can be profiled. The program rdsd has
// no flags for profiles.
func profiledDaemon(w *worker.Worker) error {
	cfg := config.Default()
	for _, k := range []string{"socket", "listen", "port", "crc", "spin", "tls.mode", "tls.cert", "tls.key", "tls.ca", "peers.paths"} {
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
