// Command demo shows rdsd at work: two daemons on 127.0.0.1 and 127.0.0.2, a
// block server on one, a client on the other. It copies a file out and back in
// while the connection between the daemons is reset again and again, and
// compares what came of it. The last line is "demo: verified ..." and the
// status 0, or what differs and 1.
//
// Every process it starts is in a session of its own, is killed if the demo
// dies, and is ended, like the temporary directory, when the demo ends or is
// interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// options are the command line.
type options struct {
	bin    string
	file   string
	mib    int
	resets int
}

func main() {
	var o options
	self, _ := os.Executable()
	flag.StringVar(&o.bin, "bin", filepath.Dir(self), "directory of rdsd, rdsctl and blockstore")
	flag.StringVar(&o.file, "file", "", "file to copy (default: a tar of the Go source tree)")
	flag.IntVar(&o.mib, "mib", 64, "size of the default file in MiB")
	flag.IntVar(&o.resets, "resets", 5, "connection resets in each direction")
	flag.Parse()
	if flag.NArg() > 0 || o.mib < 1 || o.resets < 0 {
		fmt.Fprintln(os.Stderr, "demo: takes flags only; -mib must be positive, -resets not negative")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not done after two minutes"))
	defer cancel()
	os.Exit(run(ctx, o))
}

// run makes the directory, runs the demo in it, and removes both whatever
// happens.
func run(ctx context.Context, o options) int {
	dir, err := shortTempDir()
	if err != nil {
		fmt.Println("demo:", err)
		return 1
	}
	d := &demo{options: o, dir: dir, procs: newProcesses(dir)}
	line, err := d.run(ctx)
	d.procs.stopAll()
	if err != nil && ctx.Err() == nil {
		d.procs.showLogs(os.Stderr)
	}
	if e := os.RemoveAll(dir); err == nil {
		err = e
	}
	switch {
	case ctx.Err() != nil:
		fmt.Println("demo: stopped:", context.Cause(ctx))
		return 130
	case err != nil:
		fmt.Println("demo:", err)
		return 1
	}
	fmt.Println(line)
	return 0
}

// shortTempDir makes a directory whose paths fit a unix socket's address.
func shortTempDir() (string, error) {
	dir, err := os.MkdirTemp("", "rdsd-demo-")
	if err == nil && len(dir) > 80 {
		os.Remove(dir)
		dir, err = os.MkdirTemp("/tmp", "rdsd-demo-")
	}
	return dir, err
}
