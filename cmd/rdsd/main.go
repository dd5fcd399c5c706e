// Rdsd is the daemon: Reliable Datagram Sockets in user space.
//
// It runs in the foreground and logs to standard error. SIGTERM and SIGINT end
// it in order; a second one at once. Exit status: 0 ended in order; 1 could not
// start, or failed; 2 wrong usage or configuration.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/daemon"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// engines is the number of engine threads.
const engines = 1

func main() {
	// An engine never yields its thread: control goroutines, the collector
	// and the signal handler need one more.
	runtime.GOMAXPROCS(max(engines+1, runtime.GOMAXPROCS(0)))
	// A log that nobody reads any more is no reason to end.
	signal.Ignore(syscall.SIGPIPE)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // from then on a second signal kills
	a := &app{
		stdout: os.Stdout,
		stderr: os.Stderr,
		uid:    os.Getuid(),
		getenv: os.Getenv,
		start: func(cfg config.Config, log *slog.Logger) (runner, error) {
			d, err := daemon.New(cfg, log)
			if err != nil {
				return nil, err
			}
			return d, nil
		},
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
