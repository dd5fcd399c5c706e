// Command bench measures rdsd beside raw TCP on loopback, and says how they
// compare.
//
// Every process of a measurement runs in a session of its own, as a daemon and
// its applications do: sched_yield gives way only within one. Peer and rdsd
// take turns, so that what else the machine does meets both. What is reported
// is the median of the runs, and their range; ratios are of medians.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	run       *regexp.Regexp
	runs      int
	d         time.Duration
	rdsd      string
	profile   string
	output    string
	crc       string
	spin      time.Duration
	appSpin   time.Duration
	footprint int
	list      bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		os.Exit(workerMain(os.Args[2:]))
	}
	// Children are killed with the thread that started them.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := benchMain(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	run := fs.String("run", "", "only cases whose name matches this regular `expression`")
	fs.IntVar(&o.runs, "n", 5, "`runs` of each case, 1 to 1000")
	fs.DurationVar(&o.d, "d", time.Second, "`duration` of one measurement, 10ms to 10m")
	fs.StringVar(&o.rdsd, "rdsd", filepath.Join("bin", "rdsd"), "the daemon's `program`")
	fs.StringVar(&o.profile, "profile", "", "run the daemon within this program and write CPU profiles of its processes to `directory`")
	fs.StringVar(&o.output, "o", "table", "`form` of the results: table or json")
	fs.StringVar(&o.crc, "crc", "auto", "the daemons' `crc`: auto, on or off")
	fs.DurationVar(&o.spin, "spin", 50*time.Microsecond, "how `long` daemons yield before they sleep")
	fs.DurationVar(&o.appSpin, "app-spin", 0, "how `long` rds applications yield before they block; 0 is what the daemon suggests, negative is not at all")
	fs.IntVar(&o.footprint, "footprint", 16, "`MiB` of memory that bulk transfers walk through at each end, 1 to 1024")
	fs.BoolVar(&o.list, "list", false, "list the cases and end")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	var err error
	o.run, err = regexp.Compile(*run)
	switch {
	case err != nil:
		return nil, fmt.Errorf("-run: %w", err)
	case fs.NArg() > 0:
		return nil, fmt.Errorf("%q is not a flag", fs.Arg(0))
	case o.runs < 1 || o.runs > 1000:
		return nil, fmt.Errorf("-n %d is not from 1 to 1000", o.runs)
	case o.d < 10*time.Millisecond || o.d > 10*time.Minute:
		return nil, fmt.Errorf("-d %v is not from 10ms to 10m", o.d)
	case o.footprint < 1 || o.footprint > 1024:
		return nil, fmt.Errorf("-footprint %d is not from 1 to 1024", o.footprint)
	case o.output != "table" && o.output != "json":
		return nil, fmt.Errorf("-o %q is neither table nor json", o.output)
	}
	return o, nil
}

func benchMain(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var selected []testCase
	for _, c := range cases {
		if o.run.MatchString(c.name) {
			selected = append(selected, c)
		}
	}
	if o.list {
		for _, c := range selected {
			fmt.Fprintf(stdout, "%-15s %s\n", c.name, c.doc)
		}
		return nil
	}
	if len(selected) == 0 {
		return fmt.Errorf("no case matches -run %s; -list shows them", o.run)
	}
	if o.profile == "" && slices.ContainsFunc(selected, func(c testCase) bool { return c.rds }) {
		if _, err := os.Stat(o.rdsd); err != nil {
			return fmt.Errorf("%w: `make build` makes it, -rdsd names another", err)
		}
	}
	dir, err := os.MkdirTemp("", "rdsd-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, dir: dir, stderr: stderr}
	rep, err := b.all(ctx, selected)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return rep.writeJSON(stdout)
	}
	return rep.writeTable(stdout)
}
