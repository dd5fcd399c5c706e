package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/logqueue"
	"github.com/rdsd/rdsd/internal/succession"
	"github.com/rdsd/rdsd/internal/version"
)

// runner is a daemon that is ready to run.
type runner interface {
	// Run serves until ctx ends, then releases everything.
	Run(ctx context.Context) error
}

// app is one run of the program, with the parts of the world that it sees.
type app struct {
	stdout      io.Writer
	stderr      *logqueue.Queue // all that goes to standard error, the log above all
	uid         int
	environ     []string
	start       func(*config.Loaded, *slog.Logger, source) (runner, error)
	find        func(context.Context, *config.Config, *slog.Logger) (*succession.Link, error)
	predecessor *succession.Link // nil: this is no successor
	stay        bool             // flags.stay
}

// source is what a running daemon reloads its configuration from.
type source struct {
	load  func() (*config.Loaded, error)
	file  string // "" for none
	level *slog.LevelVar
}

// flags is the command line.
type flags struct {
	config       string
	version      bool
	check        bool
	takeOver     bool
	stay         bool
	configValues []config.Assignment
}

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
	from := a.sources(f)
	cfg, err := from.Load()
	if err != nil {
		return a.fail(exitUsage, err, "")
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintf(a.stderr, "rdsd: warning: %s\n", w)
	}
	if f.check {
		fmt.Fprintln(a.stdout, "the configuration is valid")
		return exitOK
	}
	level := &slog.LevelVar{}
	level.Set(cfg.Log.Level)
	log := newLogger(a.stderr, cfg.Log, level)
	if a.stay = f.stay; f.takeOver && a.predecessor == nil { // else the starter of a daemon with this flag has started this one
		if a.predecessor, err = a.find(ctx, &cfg.Config, log); err != nil {
			return a.fail(exitFailed, err, "")
		}
	}
	d, err := a.start(cfg, log, source{from.Load, from.File, level})
	if err == nil {
		err = d.Run(ctx)
	}
	if err != nil {
		return a.fail(exitFailed, err, cure(err, &cfg.Config))
	}
	return exitOK
}

// logTime is how long the end of the program waits for the reader of the log.
const logTime = time.Second

// exit ends the program.
func (a *app) exit(code int) {
	a.stderr.Flush(logTime)
	os.Exit(code)
}

// fail prints the error and cure, and tells a predecessor. Of each error it prints a line and,
// below it, the place in the file.
func (a *app) fail(code int, err error, cure string) int {
	if a.predecessor != nil {
		a.predecessor.GiveUp(err)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !strings.HasPrefix(line, " ") {
			line = "rdsd: " + line
		}
		fmt.Fprintln(a.stderr, line)
	}
	if cure != "" {
		fmt.Fprintf(a.stderr, "rdsd: to cure it: %s\n", cure)
	}
	return code
}

// sources are the sources of the configuration.
func (a *app) sources(f *flags) *config.Sources {
	s := &config.Sources{File: f.config, Environ: a.environ, Flags: f.configValues, UID: a.uid}
	for _, e := range a.environ {
		if v, ok := strings.CutPrefix(e, config.FileEnv+"="); ok && f.config == "" {
			s.File = v
		}
	}
	return s
}

// newLogger returns a logger that writes to q, and has q say in the same format how many lines
// it has dropped.
func newLogger(q *logqueue.Queue, cfg config.Log, level *slog.LevelVar) *slog.Logger {
	q.Says(func(w io.Writer, lost uint64) {
		r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of the log were dropped, because nobody read them", 0)
		r.Add("lines", lost)
		_ = newHandler(w, cfg, level).Handle(context.Background(), r)
	})
	return slog.New(newHandler(q, cfg, level))
}

func newHandler(w io.Writer, cfg config.Log, level *slog.LevelVar) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}
