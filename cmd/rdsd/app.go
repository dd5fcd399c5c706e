package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/version"
)

// runner is a daemon that has what it needs.
type runner interface {
	// Run serves until ctx ends, and gives everything back.
	Run(ctx context.Context) error
}

// app is one run of the program and what it sees of the world.
type app struct {
	stdout, stderr io.Writer
	uid            int
	getenv         func(string) string
	start          func(config.Config, *slog.Logger) (runner, error)
}

// flags is the command line.
type flags struct {
	config       string
	version      bool
	check        bool
	configValues []assignment
}

// assignment is one key set by a flag.
type assignment struct{ key, value string }

func (a *app) run(ctx context.Context, args []string) int {
	f, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		printUsage(a.stdout)
		return exitOK
	}
	if err != nil {
		return a.fail(exitUsage, err, "rdsd -help lists the flags")
	}
	if f.version {
		fmt.Fprintf(a.stdout, "rdsd %s %s %s/%s\n", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return exitOK
	}
	cfg, err := a.configure(f)
	if err != nil {
		return a.fail(exitUsage, err, "")
	}
	if f.check {
		fmt.Fprintln(a.stdout, "the configuration is valid")
		return exitOK
	}
	d, err := a.start(cfg, newLogger(a.stderr, cfg.Log))
	if err == nil {
		err = d.Run(ctx)
	}
	if err != nil {
		return a.fail(exitFailed, err, cure(err, &cfg))
	}
	return exitOK
}

// fail prints one line of cause, which may be several errors, and one of cure.
func (a *app) fail(code int, err error, cure string) int {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(a.stderr, "rdsd: %s\n", line)
	}
	if cure != "" {
		fmt.Fprintf(a.stderr, "rdsd: to cure it: %s\n", cure)
	}
	return code
}

// configure puts together defaults, file, environment and flags.
func (a *app) configure(f *flags) (config.Config, error) {
	cfg := config.Default()
	if f.config != "" {
		if err := cfg.ReadFile(f.config); err != nil {
			return cfg, err
		}
	}
	if s := a.getenv("RDSD_SOCKET"); s != "" {
		if err := cfg.Set("socket", s); err != nil {
			return cfg, fmt.Errorf("RDSD_SOCKET: %w", err)
		}
	}
	for _, kv := range f.configValues {
		if err := cfg.Set(kv.key, kv.value); err != nil {
			return cfg, fmt.Errorf("-%s: %w", flagName(kv.key), err)
		}
	}
	return cfg, cfg.Finish(a.uid, a.getenv)
}

func newLogger(w io.Writer, cfg config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.Level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
