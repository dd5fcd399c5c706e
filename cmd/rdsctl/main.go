// Rdsctl asks a running rdsd what it does, and resets connections.
//
// Data goes to standard output, messages to standard error. Tables are for
// people and may change; -o json is schema rdsd.v1 and only grows.
//
// Exit status: 0 done; 1 failed; 2 wrong usage; 3 no daemon is running (also:
// status --offline found only what a daemon that is gone left).
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stress"
)

// Exit statuses.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNoDaemon = 3
)

// app is one run of the program and what it sees of the world.
type app struct {
	stdout, stderr io.Writer
	paths          []string // control sockets that status -offline goes by
	// dial opens the control service at path, "" = at the first of paths.
	dial func(ctx context.Context, path string) (caller, error)
	// asOld: the program was called rds-stress, and is read by scripts made for
	// that.
	asOld        bool
	stressTiming stress.Timing // zero: rds-stress's
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{
		stdout: os.Stdout,
		stderr: os.Stderr,
		paths:  ipc.DefaultPaths(),
		dial:   dial,
	}
	code := a.called(ctx, os.Args)
	stop()
	os.Exit(code)
}

// called runs the program by the name it has: links named rds-stress and
// rds-ping are those programs.
func (a *app) called(ctx context.Context, args []string) int {
	switch filepath.Base(args[0]) {
	case "rds-stress":
		a.asOld = true
		return a.run(ctx, append([]string{"stress"}, args[1:]...))
	case "rds-ping":
		return a.oldPing(ctx, args[1:])
	}
	return a.run(ctx, args[1:])
}
