// Command demo shows rdsd at work: two daemons on 127.0.0.1 and 127.0.0.2, a block server
// at one and a client at the other. It copies a file out and back in, and resets the
// connection between the daemons again and again meanwhile. Then it compares the files. If
// all is well, the last line is "demo: verified ..." and the status is 0. Otherwise the
// last line says what differs, and the status is 1.
//
// Each process that the demo starts has a session of its own, is killed if the demo dies,
// and is ended when the demo ends or is interrupted. A keeper process removes the temporary
// directory in each of these cases.
package main

import (
	"context"
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
	if len(os.Args) == 2 && os.Args[1] == keepArg {
		if err := keep(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			os.Exit(1)
		}
		return
	}
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
	os.Exit(run(ctx, o))
}

// run runs the demo in a directory of its own and removes the directory.
func run(ctx context.Context, o options) int {
	if err := checkFile(o.file); err != nil {
		fmt.Println("demo:", err)
		return 1
	}
	k, err := startKeeper()
	if err != nil {
		fmt.Println("demo:", err)
		return 1
	}
	d := &demo{options: o, dir: k.dir, procs: &processes{}}
	line, err := d.run(ctx)
	d.procs.stopAll()
	if err != nil && ctx.Err() == nil {
		d.procs.showLogs(os.Stderr)
	}
	if e := k.close(); err == nil {
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

// checkFile checks the user's file before anything is started.
func checkFile(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("FILE: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("FILE: %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("FILE: %w", err)
	}
	return f.Close()
}

// patience is how long it may take to copy size bytes out and in and to compare them.
func patience(size int64) time.Duration {
	const slowest = 20 << 20 // bytes a second
	return time.Minute + time.Duration(size/slowest)*time.Second
}
