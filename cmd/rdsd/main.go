// Rdsd is the daemon of Reliable Datagram Sockets in user space.
//
// It runs in the foreground and logs to standard error, for whose reader it never waits. SIGTERM
// and SIGINT end it in order, a second one ends it at once. SIGHUP reloads the configuration. SIGUSR2 starts the program
// anew and has it take over. The exit status is 0 after an end in order and when another
// daemon has taken over, 1 if it could not start or failed, and 2 for wrong usage or
// configuration.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/daemon"
	"github.com/rdsd/rdsd/internal/logqueue"
	"github.com/rdsd/rdsd/internal/service"
	"github.com/rdsd/rdsd/internal/succession"
	"github.com/rdsd/rdsd/internal/version"
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
	a := &app{
		stdout:  os.Stdout,
		stderr:  logqueue.New(os.Stderr),
		uid:     os.Getuid(),
		environ: os.Environ(),
	}
	if succession.IsStarter() {
		a.exit(succession.RunStarter(a.stderr))
	}
	// An engine never yields its thread, so control goroutines, the garbage collector and
	// the signal handler need one more.
	runtime.GOMAXPROCS(max(engines+1, runtime.GOMAXPROCS(0)))
	// If the reader of the log goes away, the daemon goes on.
	signal.Ignore(syscall.SIGPIPE)

	// From here on SIGHUP and SIGUSR2 do not end the program. Before Run they are kept
	// until Run.
	asked := make(chan os.Signal, 2)
	signal.Notify(asked, syscall.SIGHUP, syscall.SIGUSR2)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// A successor must not take over once it was asked to end. ctx learns of a signal a little
	// later than ended.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, func() { // after the first signal, a second one ends the program at once
		stop()
		signal.Stop(ended)
	})
	var err error
	if a.predecessor, err = succession.Succeeds(); err != nil {
		a.exit(a.fail(exitFailed, err, ""))
	}
	a.find = daemon.FindPredecessor
	a.start = func(cfg *config.Loaded, log *slog.Logger, from source) (runner, error) {
		d, err := a.open(ended, cfg, log, func(d *daemon.Daemon) {
			d.ReloadFrom(from.load, cfg.Origins, from.level)
			d.Confine(from.file)
		})
		return signalled{d, asked, log, a.stay}, err
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	a.exit(code)
}

// open opens a daemon, which takes over from the predecessor if there is one.
// It does not take over once ended has something.
func (a *app) open(ended <-chan os.Signal, cfg *config.Loaded, log *slog.Logger, confine func(*daemon.Daemon)) (*daemon.Daemon, error) {
	sockets, err := service.TakeSockets()
	if err != nil {
		return nil, err
	}
	defer sockets.Close() // closes the sockets that nobody has taken
	super := daemon.Supervisor{Sockets: sockets, Notify: service.NewNotifier(log), Log: a.stderr}
	if a.predecessor != nil {
		return takeOver(a.predecessor, &daemon.Successor{Super: super, Config: cfg.Config, Log: log, Confine: confine,
			Asked: func() error {
				if len(ended) == 0 {
					return nil
				}
				return errors.New("the new daemon was asked to end")
			}})
	}
	d, err := daemon.NewUnder(super, cfg.Config, log)
	if err == nil {
		confine(d)
	}
	return d, err
}

// takeOver takes over from the daemon at the other end of l.
func takeOver(l *succession.Link, s *daemon.Successor) (*daemon.Daemon, error) {
	gone, forget, err := l.PeerGone()
	if err != nil {
		return nil, err
	}
	s.Serves = l.Serves
	s.Gone = func() bool {
		defer forget()
		return gone()
	}
	if err := succession.TakeOver(l, s, version.String(), gone); err != nil {
		s.Leave()
		return nil, err
	}
	return s.Daemon(), nil
}

// signalled is a daemon that heeds SIGHUP and SIGUSR2.
type signalled struct {
	*daemon.Daemon
	asked <-chan os.Signal
	log   *slog.Logger
	stay  bool
}

// Run serves until ctx ends, or until another daemon has taken over. If stay says so and that one was
// not started by this one, Run waits for the end of ctx then.
func (r signalled) Run(ctx context.Context) error {
	done, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case s := <-r.asked:
				if s == syscall.SIGHUP {
					r.Hangup()
				} else if _, err := r.BeginUpgrade(""); err != nil {
					r.log.Error("no upgrade", "err", err)
				}
			case <-stop:
				return
			}
		}
	}()
	err := r.Daemon.Run(ctx)
	close(stop)
	<-done
	if err == nil && r.stay && r.TakenOver() {
		r.log.Info("another daemon serves, this process does nothing any more and waits for SIGTERM")
		<-ctx.Done()
	}
	return err
}
