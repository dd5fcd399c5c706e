package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// output is a form of -o.
type output string

const (
	asTable   output = "table"
	wide      output = "wide"
	asJSON    output = "json"
	jsonLines output = "jsonl"
	asCSV     output = "csv"

	oldJSON  output = "json-v2" // in the schema before, for those who ask for it
	oldLines output = "jsonl-v2"

	nagios     output = "nagios" // only for check
	prometheus output = "prometheus"
)

var (
	allForms   = []output{asTable, wide, asJSON, jsonLines, asCSV}
	checkForms = append(allForms[:len(allForms):len(allForms)], nagios, prometheus)
)

func (o *output) String() string { return string(*o) }

func (o *output) Set(s string) error {
	if s == "text" {
		s = string(asTable)
	}
	*o = output(s) // whether the verb has this form is checked later
	return nil
}

// old reports whether the form is in the schema before.
func (o output) old() bool { return o == oldJSON || o == oldLines }

// form is o, whichever its schema.
func (o output) form() output {
	switch o {
	case oldJSON:
		return asJSON
	case oldLines:
		return jsonLines
	}
	return o
}

// json reports whether errors are JSON, too.
func (o output) json() bool { return o.form() == asJSON || o.form() == jsonLines }

// machine reports whether the form is for programs. printJSON prints all of these.
func (o output) machine() bool { return o.json() || o == asCSV }

func oneOf(forms []output) string {
	var names []string
	for _, f := range forms {
		names = append(names, string(f))
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// options are the flags that verbs share.
type options struct {
	offline bool   // read the daemon's mapping
	stats   string // which mapping
	limit   int    // rows of the daemon's list; 0: that of the daemon

	output  output
	socket  string
	timeout time.Duration

	// For verbs that show a list.
	columns, sort, filter string
	noHeader              bool
	watch                 time.Duration
}

func newOptions() *options { return &options{output: asTable, timeout: 5 * time.Second} }

// declare declares the flags that v takes. For a nil v it declares those of all verbs.
func (o *options) declare(fs *flag.FlagSet, v *verb) {
	forms := allForms
	if v != nil {
		forms = v.forms
	}
	if len(forms) > 0 {
		fs.Var(&o.output, "o", "`form` of the output: "+oneOf(forms))
	}
	if v == nil || !v.alone {
		fs.StringVar(&o.socket, "socket", o.socket, "control socket `path` of the daemon (default: RDSD_SOCKET, or the usual places)")
		fs.DurationVar(&o.timeout, "timeout", o.timeout, "how `long` to wait for an answer")
	}
	if v != nil && v.names != nil {
		fs.StringVar(&o.columns, "columns", "", "`names` of the columns or fields to show, separated by commas; rdsctl help VERB lists them")
		fs.StringVar(&o.filter, "filter", "", "only rows for which all `terms` hold: NAME=VALUE, != ~ (contains) !~ < <= > >=, separated by commas; "+
			"an address/bits is a network, * any text, sizes may end in K, M, G, times be 1.5ms")
		fs.StringVar(&o.sort, "sort", "", "order by these `names`, -NAME: the largest first")
		fs.BoolVar(&o.noHeader, "no-header", false, "no header line (table, wide, csv)")
	}
	if v != nil && v.limit {
		fs.IntVar(&o.limit, "limit", ctl.DefaultLimit, fmt.Sprintf("at most this `number` of rows, up to %d", ctl.MaxLimit))
	}
	if v != nil && v.offline {
		fs.BoolVar(&o.offline, "offline", false, "read the statistics mapping instead of asking: works while the daemon is stuck, and after it died")
		fs.StringVar(&o.stats, "stats", "", "statistics mapping for -offline (default: the control socket's `path` with .stats appended)")
	}
	if v != nil && v.watch {
		fs.DurationVar(&o.watch, "watch", 0, "again after this `time`, until interrupted")
	}
}

// check returns a usage error if the flags do not fit v.
func (o *options) check(v *verb) error {
	switch {
	case len(v.forms) == 0 && o.output != asTable:
		return usagef("%s has one form of output, not -o %s", v.name, o.output)
	case len(v.forms) > 0 && !slices.Contains(v.forms, o.output.form()):
		return usagef("%s: -o %s: want %s", v.name, o.output, oneOf(v.forms))
	case o.timeout <= 0:
		return usagef("%s: -timeout %v is not positive", v.name, o.timeout)
	case o.watch < 0 || o.watch > 0 && o.watch < 10*time.Millisecond:
		return usagef("%s: -watch %v: want 10ms or more", v.name, o.watch)
	case v.limit && (o.limit < 1 || o.limit > ctl.MaxLimit):
		return usagef("%s: -limit %d is not between 1 and %d", v.name, o.limit, ctl.MaxLimit)
	case o.stats != "" && !o.offline:
		return usagef("%s: -stats is for -offline", v.name)
	}
	return nil
}

func newFlagSet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

// parseMixed parses flags before, between and after the arguments.
func parseMixed(fs *flag.FlagSet, args []string) (words []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return words, nil
		}
		words = append(words, fs.Arg(0))
		args = fs.Args()[1:]
	}
}

// flagError adds the names of the flags to err.
func flagError(fs *flag.FlagSet, name string, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, "-"+f.Name) })
	if name != "" {
		name += ": "
	}
	text := err.Error()
	if before, ok := strings.CutSuffix(text, ": parse error"); ok { // package flag does not say which values it wants
		want := "a number"
		if f := fs.Lookup(before[strings.LastIndexByte(before, '-')+1:]); f != nil {
			switch v, _ := f.Value.(flag.Getter); v.Get().(type) {
			case time.Duration:
				want = "a time with its unit, such as 1s or 250ms"
			case bool:
				want = "true or false"
			}
		}
		text = before + ": want " + want
	}
	return usagef("%s%s; flags here: %s", name, text, strings.Join(known, " "))
}

// repeat runs f once, or with --watch until ctx ends. It goes on if the daemon is gone,
// because it may come back.
func (a *app) repeat(ctx context.Context, o *options, f func() int) int {
	if o.watch == 0 {
		return f()
	}
	tick := time.NewTicker(o.watch)
	defer tick.Stop()
	for {
		if a.screen != nil && !o.output.machine() {
			fmt.Fprint(a.stdout, "\x1b[H\x1b[2J")
		}
		code := f()
		if code == exitUsage || code == exitPermission || code == exitVersion {
			return code
		}
		select {
		case <-ctx.Done():
			if code == exitTimeout { // it was interrupted while it waited
				return exitOK
			}
			return code
		case <-tick.C:
		}
	}
}
