// Rdsctl asks a running rdsd what it does, and changes what it may.
//
// Data goes to standard output, messages to standard error. Tables are for
// people and may change; -o json is schema rdsd.v1 and only grows.
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

// app is one run of the program and what it sees of the world.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	screen         *screen  // nil: standard output is no terminal
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
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		screen: newScreen(os.Stdin, os.Stdout),
		paths:  ipc.DefaultPaths(),
		dial:   dial,
	}
	code := a.called(ctx, os.Args)
	stop()
	os.Exit(code)
}

// called runs the program by the name it has: links named rds-stress, rds-ping
// and rds-info are those programs.
func (a *app) called(ctx context.Context, args []string) int {
	switch filepath.Base(args[0]) {
	case "rds-stress":
		a.asOld = true
		return a.run(ctx, append([]string{"stress"}, args[1:]...))
	case "rds-ping":
		return a.oldPing(ctx, args[1:])
	case "rds-info":
		return a.oldInfo(ctx, args[1:])
	}
	return a.run(ctx, args[1:])
}
