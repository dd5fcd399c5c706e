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
)

// verb is one command.
type verb struct {
	name    string // one or two words
	args    string // "" or "ADDR"
	summary string
	// prepare declares the verb's own flags and returns what runs it.
	prepare func(fs *flag.FlagSet) action // nil: see raw
}

// raw returns what runs a verb that reads its command line itself, nil for the
// others. Its error is a usage error.
func (v *verb) raw() func(ctx context.Context, a *app, o *options, args []string) (int, error) {
	if v.name == "stress" {
		return runStress
	}
	return nil
}

// action runs a verb after its flags are parsed. arg is its argument.
type action func(ctx context.Context, a *app, o *options, arg string) int

// options are the flags every verb takes.
type options struct {
	output  output
	socket  string
	timeout time.Duration
}

type output string

func (o *output) String() string { return string(*o) }

func (o *output) Set(s string) error {
	if s != "table" && s != "json" {
		return errors.New("want table or json")
	}
	*o = output(s)
	return nil
}

func (o *options) declare(fs *flag.FlagSet) {
	fs.Var(&o.output, "o", "`form` of the output: table or json")
	fs.StringVar(&o.socket, "socket", o.socket, "control socket `path` of the daemon (default: RDSD_SOCKET, or the usual places)")
	fs.DurationVar(&o.timeout, "timeout", o.timeout, "how long to wait for an answer")
}

func verbs() []verb {
	return []verb{
		{"status", "", "what the daemon is, how its engine does, what it holds", statusVerb},
		{"sockets", "", "the sockets bound here, with their owners and queues", socketsVerb},
		{"peers", "", "the connections to other hosts", peersVerb},
		{"ping", "ADDR", "round trips to another daemon", pingVerb},
		{"bench", "[ADDR]", "measure round trips, rates and RDMA against rdsctl bench -serve at ADDR[:PORT], or with both ends here", benchVerb},
		{"stress", "", "rds-stress: load, with everything that arrives checked, against another rdsctl stress or an rds-stress", nil},
		{"peer reset", "ADDR", "break off the connections to a peer; they return with the next traffic, datagrams are not lost, operations under way may be DROPPED", peerResetVerb},
		{"config show", "", "the configuration the daemon runs with, and where each value comes from", configShowVerb},
		{"config diff", "", "what the daemon's sources say now that it does not run with", configDiffVerb},
		{"config reload", "", "read the sources again and apply what can be without a restart", configReloadVerb},
		{"config validate", "FILE", "check a configuration file and its drop-ins; no daemon is asked", configValidateVerb},
		{"config docs", "", "a configuration file with every key, its documentation and default", configDocsVerb},
	}
}

// usageError is what the command line has wrong.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// run finds the verb and runs it.
func (a *app) run(ctx context.Context, args []string) int {
	o := &options{output: "table", timeout: 5 * time.Second}
	code, err := a.dispatch(ctx, o, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(a.stderr, "rdsctl: %v\n", err)
		return exitUsage
	}
	return code
}

func (a *app) dispatch(ctx context.Context, o *options, args []string) (int, error) {
	root := newFlagSet("rdsctl")
	o.declare(root)
	if err := root.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printUsage(a.stdout)
		}
		return 0, flagError(root, "", err)
	}
	args = root.Args()
	if len(args) > 0 && args[0] == "help" {
		return exitOK, a.help(args[1:])
	}
	v, rest, err := find(args)
	if err != nil {
		return 0, err
	}
	if run := v.raw(); run != nil {
		return run(ctx, a, o, rest)
	}
	fs := newFlagSet("rdsctl " + v.name)
	o.declare(fs)
	act := v.prepare(fs)
	words, err := parseMixed(fs, rest)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printVerb(a.stdout, v)
		}
		return 0, flagError(fs, v.name, err)
	}
	switch {
	case v.args != "" && v.args[0] != '[' && len(words) == 0:
		return 0, usagef("%s: %s is missing; usage: rdsctl %[1]s %[2]s", v.name, v.args)
	case v.args == "" && len(words) > 0:
		return 0, usagef("%s takes no argument, %q is one too many", v.name, words[0])
	case len(words) > 1:
		return 0, usagef("%s takes one argument, %q is one too many", v.name, words[1])
	case o.timeout <= 0:
		return 0, usagef("%s: -timeout %v is not positive", v.name, o.timeout)
	}
	if o.socket != "" {
		a.paths = []string{o.socket}
	}
	return act(ctx, a, o, strings.Join(words, "")), nil
}

// find returns the verb that args start with and what follows it.
func find(args []string) (*verb, []string, error) {
	all := verbs()
	var names []string
	for i := range all {
		v := &all[i]
		names = append(names, v.name)
		words := strings.Fields(v.name)
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return v, args[len(words):], nil
		}
	}
	known := strings.Join(names, ", ")
	switch {
	case len(args) == 0:
		return nil, nil, usagef("no verb; there are: %s (more: rdsctl help)", known)
	case args[0] == "peer":
		return nil, nil, usagef("peer: want rdsctl peer reset ADDR")
	case args[0] == "config":
		return nil, nil, usagef("config: want rdsctl config show, diff, reload, validate FILE or docs")
	}
	return nil, nil, usagef("unknown verb %q; there are: %s (more: rdsctl help)", args[0], known)
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

// flagError adds the flags there are.
func flagError(fs *flag.FlagSet, name string, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, "-"+f.Name) })
	if name != "" {
		name += ": "
	}
	return usagef("%s%v; flags here: %s", name, err, strings.Join(known, " "))
}

func (a *app) help(args []string) error {
	if len(args) == 0 {
		printUsage(a.stdout)
		return nil
	}
	v, _, err := find(args)
	if err == nil {
		printVerb(a.stdout, v)
	}
	return err
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, "usage: rdsctl VERB [ADDR|FILE] [flags]\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  %-18s %s\n", strings.TrimSpace(v.name+" "+v.args), v.summary)
	}
	fmt.Fprint(w, "  help [VERB]        this, or a verb's flags\n\nflags of every verb:\n")
	fs := newFlagSet("")
	(&options{output: "table", timeout: 5 * time.Second}).declare(fs)
	fs.SetOutput(w)
	fs.PrintDefaults()
	fmt.Fprint(w, "\nexit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon is running\n")
}

func printVerb(w io.Writer, v *verb) {
	if run := v.raw(); run != nil {
		_, _ = run(context.Background(), &app{stdout: w}, &options{}, []string{"--help"})
		return
	}
	fmt.Fprintf(w, "usage: rdsctl %s [flags]\n\n%s\n\n", strings.TrimSpace(v.name+" "+v.args), v.summary)
	fs := newFlagSet("")
	(&options{output: "table", timeout: 5 * time.Second}).declare(fs)
	v.prepare(fs)
	fs.SetOutput(w)
	fs.PrintDefaults()
}
