// Rdsctl shows the state of a running rdsd, and changes what can be changed while it runs.
//
// Data goes to standard output, messages go to standard error. Tables are for people and
// may change. -o json is schema rdsd.v3, which only grows.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/rdsd/rdsd/internal/hosts"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stress"
)

// app is one run of the program, with the parts of the world that it sees.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	screen         *screen        // nil if standard output is no terminal
	shown          terminal       // used without a screen, by tests
	resolver       hosts.Resolver // nil for the system's
	paths          []string       // control sockets whose statistics status -offline looks for
	// dial opens the control service at path. If path is "", it tries paths in order.
	dial func(ctx context.Context, path string) (caller, error)
	// asOld says that the program was called as rds-stress, by scripts made for the
	// original.
	asOld        bool
	stressTiming stress.Timing // zero for rds-stress's
	// exec replaces this process by a program; nil for syscall.Exec.
	exec func(program string, args, env []string) error
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

// called runs the program by the name that it was called with: links named rds-stress,
// rds-ping and rds-info are those programs.
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
