// Rdsd is the daemon of Reliable Datagram Sockets in user space.
//
// It runs in the foreground and logs to standard error. SIGTERM and SIGINT end it in order,
// a second one ends it at once. SIGHUP reloads the configuration. The exit status is 0
// after an end in order, 1 if it could not start or failed, and 2 for wrong usage or
// configuration.
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
	"github.com/rdsd/rdsd/internal/service"
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
	// An engine never yields its thread, so control goroutines, the garbage collector and
	// the signal handler need one more.
	runtime.GOMAXPROCS(max(engines+1, runtime.GOMAXPROCS(0)))
	// If the reader of the log goes away, the daemon goes on.
	signal.Ignore(syscall.SIGPIPE)

	// From here on SIGHUP does not end the program. Before Run it is kept until Run.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // after the first signal, a second one ends the program at once
	a := &app{
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		uid:     os.Getuid(),
		environ: os.Environ(),
		start: func(cfg *config.Loaded, log *slog.Logger, from source) (runner, error) {
			sockets, err := service.TakeSockets()
			if err != nil {
				return nil, err
			}
			defer sockets.Close() // closes the sockets that nobody has taken
			d, err := daemon.NewUnder(daemon.Supervisor{Sockets: sockets, Notify: service.NewNotifier(log)}, cfg.Config, log)
			if err != nil {
				return nil, err
			}
			d.ReloadFrom(from.load, cfg.Origins, from.level)
			d.Confine(from.file)
			return reloader{d, hup}, nil
		},
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// reloader is a daemon that reloads at SIGHUP.
type reloader struct {
	*daemon.Daemon
	hup <-chan os.Signal
}

// Run serves until ctx ends.
func (r reloader) Run(ctx context.Context) error {
	done, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-r.hup:
				_, _ = r.Reload() // it logs the result
			case <-stop:
				return
			}
		}
	}()
	err := r.Daemon.Run(ctx)
	close(stop)
	<-done
	return err
}
