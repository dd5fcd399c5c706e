package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/config"
)

// flagSet declares the program's own flags and one for each key of the configuration.
func flagSet(f *flags) *flag.FlagSet {
	fs := flag.NewFlagSet("rdsd", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.StringVar(&f.config, "config", "", "configuration `file` in TOML, and its drop-ins FILE.d/*.toml; default: the file that "+config.FileEnv+" names, or none")
	fs.BoolVar(&f.version, "version", false, "print the version and end")
	fs.BoolVar(&f.takeOver, "take-over", false, "take the place of the daemon that runs at the control socket, such as one of another container; if none runs there, start as usual")
	fs.BoolVar(&f.stay, "stay", false, "when a daemon that this one has not started has taken over, do not end, but wait for SIGTERM: for what starts every container again that ends")
	fs.BoolVar(&f.check, "check-config", false, "check file and flags and end")
	for _, k := range config.Keys() {
		help := fmt.Sprintf("%s `Value`: %s.", k.Doc, k.Allowed)
		if k.Default != "" {
			help += " Default: " + k.Default + "."
		}
		fs.Func(config.FlagName(k.Name), help, func(s string) error { return f.set(k, s) })
	}
	return fs
}

// set keeps a value for configure. The flag of a list may be repeated, and its value may
// have commas.
func (f *flags) set(k config.Key, s string) error {
	i := slices.IndexFunc(f.configValues, func(a config.Assignment) bool { return a.Key == k.Name })
	switch {
	case i < 0:
		f.configValues = append(f.configValues, config.Assignment{Key: k.Name, Value: s})
	case k.List:
		f.configValues[i].Value += "," + s
	default:
		f.configValues[i].Value = s
	}
	return nil
}

func parseFlags(args []string) (*flags, error) {
	f := &flags{}
	fs := flagSet(f)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		var known []string
		fs.VisitAll(func(f *flag.Flag) { known = append(known, "-"+f.Name) })
		return nil, fmt.Errorf("%w; there are: %s", err, strings.Join(known, " "))
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag; rdsd takes no arguments", fs.Arg(0))
	}
	return f, nil
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, "usage: rdsd [flags]\n\nReliable Datagram Sockets in user space: the daemon of this host.\nFlags override the environment (peers.allow is RDSD_PEERS_ALLOW), which overrides the drop-ins, which override the file.\nFor a list, repeat the flag, or separate the values by commas.\nSIGHUP reads everything again, and applies the values that can change while the daemon runs (rdsctl config docs).\n\n")
	fs := flagSet(&flags{})
	fs.SetOutput(w)
	fs.PrintDefaults()
	fmt.Fprint(w, "\nexit status: 0 ended by SIGTERM or SIGINT, 1 could not start or failed, 2 wrong usage or configuration\n")
}
