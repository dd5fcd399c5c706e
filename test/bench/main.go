// Command bench measures rdsd on loopback, compares it with other messaging software and
// with the bare path, and prints the ratios.
//
// Each process of a measurement has a session of its own, as a daemon and its applications
// have, because sched_yield yields only within a session. The cases take turns, so that
// load on the machine affects all of them. The report has the median of the runs and their
// range. Ratios are of medians.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// options are the values of the flags.
type options struct {
	run     *regexp.Regexp
	groups  []string
	runs    int
	d       time.Duration
	longest time.Duration // most time for a case that needs longer than the others
	rdsd    string
	peers   string
	profile string
	output  string
	plots   string
	read    string // read this report instead of measuring
	history string // plot this history instead of measuring
	crc     string
	spin    time.Duration
	appSpin time.Duration
	list    bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == worker.Arg {
		os.Exit(worker.Main(os.Args[2:], roles))
	}
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
	chosen := fs.String("groups", strings.Join(groups, ","), "only cases of these `groups`")
	fs.IntVar(&o.runs, "n", 5, "`runs` of each case, 1 to 1000")
	fs.DurationVar(&o.d, "d", 500*time.Millisecond, "`duration` of one measurement, 10ms to 10m")
	fs.DurationVar(&o.longest, "longest", 10*time.Second, "`duration` of a measurement in the cases that need longer than -d")
	fs.StringVar(&o.rdsd, "rdsd", filepath.Join("bin", "rdsd"), "the daemon's `program`")
	fs.StringVar(&o.peers, "peers", filepath.Join("bin", "bench-peers"), "the `program` with the peers that are libraries; without it these peers are left out")
	fs.StringVar(&o.profile, "profile", "", "run the daemon within this program and write CPU profiles of its processes to `directory`")
	fs.StringVar(&o.output, "o", "table", "`form` of the results: "+formNames())
	fs.StringVar(&o.read, "read", "", "measure nothing, read the report that -o json wrote to `file`")
	fs.StringVar(&o.history, "history", "", "measure nothing, plot the ratios that -o history wrote to `file`, into the directory of -plots")
	fs.StringVar(&o.plots, "plots", "", "write plots, as SVG, to `directory`")
	fs.StringVar(&o.crc, "crc", "auto", "the daemons' `crc`: auto, on or off")
	fs.DurationVar(&o.spin, "spin", 50*time.Microsecond, "how `long` daemons and relays yield before they sleep")
	fs.DurationVar(&o.appSpin, "app-spin", 0, "how `long` applications yield before they block; 0: those of rdsd as they find best, for as long as the daemon suggests, the others as long as a relay; negative: not at all")
	fs.BoolVar(&o.list, "list", false, "list the cases and end")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	var err error
	o.run, err = regexp.Compile(*run)
	o.groups = strings.Split(*chosen, ",")
	unknown := slices.IndexFunc(o.groups, func(g string) bool { return !slices.Contains(groups, g) })
	switch {
	case err != nil:
		return nil, fmt.Errorf("-run: %w", err)
	case fs.NArg() > 0:
		return nil, fmt.Errorf("%q is not a flag", fs.Arg(0))
	case unknown >= 0:
		return nil, fmt.Errorf("-groups: %q is none of %s", o.groups[unknown], strings.Join(groups, ", "))
	case o.runs < 1 || o.runs > 1000:
		return nil, fmt.Errorf("-n %d is not from 1 to 1000", o.runs)
	case o.d < 10*time.Millisecond || o.d > 10*time.Minute:
		return nil, fmt.Errorf("-d %v is not from 10ms to 10m", o.d)
	case forms[o.output] == nil:
		return nil, fmt.Errorf("-o %q is none of %s", o.output, formNames())
	case o.history != "" && o.plots == "":
		return nil, errors.New("-history needs -plots, the directory for the plot")
	}
	return o, nil
}

// selected are the cases of -groups and -run, and those that their ratios and goals compare
// them with.
func (o *options) selected() []testCase {
	named := func(c testCase) bool { return slices.Contains(o.groups, c.group) && o.run.MatchString(c.name) }
	beside := map[string]bool{}
	for _, c := range allCases() {
		if named(c) {
			beside[c.peer] = true
			for _, g := range goals() {
				if g.of.name == c.name && g.over != nil {
					beside[g.over.name] = true
				}
			}
		}
	}
	return slices.DeleteFunc(allCases(), func(c testCase) bool { return !named(c) && !beside[c.name] })
}

func benchMain(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	switch {
	case o.history != "":
		return plotHistory(o.history, o.plots, stderr)
	case o.read != "":
		rep, err := readReport(o.read)
		if err != nil {
			return err
		}
		return forms[o.output](rep, stdout)
	}
	cs := o.selected()
	if o.list {
		for _, c := range cs {
			fmt.Fprintf(stdout, "%-6s %-24s %s\n", c.group, c.name, c.doc)
		}
		return nil
	}
	return measure(ctx, o, cs, stdout, stderr)
}

// measure runs cs and writes the report.
func measure(ctx context.Context, o *options, cs []testCase, stdout, stderr io.Writer) error {
	if len(cs) == 0 {
		return fmt.Errorf("no case of these groups matches -run %s; -list shows them", o.run)
	}
	if o.profile == "" && slices.ContainsFunc(cs, func(c testCase) bool { return c.topo.daemons() }) {
		if _, err := os.Stat(o.rdsd); err != nil {
			return fmt.Errorf("%w: `make build` makes it, -rdsd names another", err)
		}
	}
	dir, err := newTempDir()
	if err != nil {
		return err
	}
	defer dir.close()
	b := &bench{options: o, dir: dir.path, stderr: stderr, peers: peerRoles(o.peers)}
	rep, failed := b.all(ctx, cs)
	if rep == nil {
		return failed
	}
	if err := forms[o.output](rep, stdout); err != nil {
		return err
	}
	if o.plots != "" {
		files, err := rep.writePlots(o.plots)
		for _, f := range files {
			fmt.Fprintln(stderr, "wrote", f)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}
