package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
)

func configList() *listing[ctl.ConfigValue] {
	type V = ctl.ConfigValue
	return &listing[V]{
		kind:  ctl.KindConfig,
		items: func(r *ctl.Response) []V { return r.Config },
		columns: []column[V]{
			{head: "KEY", field: "key", text: func(v *V) string { return cell(v.Key, "unknown") }},
			{head: "VALUE", field: "value", text: func(v *V) string { return cell(v.Value, `""`) }},
			{head: "DEFAULT", field: "default", wide: true, text: func(v *V) string { return cell(v.Default, `""`) }},
			{head: "FROM", field: "origin", text: func(v *V) string { return cell(v.Origin, "unknown") }},
			{head: "CHANGED-BY", field: "live", text: func(v *V) string { return appliedBy(v.Live) }},
		},
	}
}

func configShowVerb(fs *flag.FlagSet) action {
	changed := fs.Bool("changed", false, "only keys that are not at their default")
	return func(ctx context.Context, a *app, o *options, _ string) int {
		l := configList()
		if *changed {
			l.keep = func(v *ctl.ConfigValue) bool { return v.Value != v.Default }
		}
		return l.run(ctx, a, o, ctl.Request{})
	}
}

func appliedBy(live bool) string {
	if live {
		return "reload"
	}
	return "restart"
}

func configDiffVerb(*flag.FlagSet) action   { return reloadAction(ctl.KindDiff, "a reload applies") }
func configReloadVerb(*flag.FlagSet) action { return reloadAction(ctl.KindReload, "applied") }

func reloadAction(kind ctl.Kind, applied string) action {
	return func(ctx context.Context, a *app, o *options, _ string) int {
		return a.ask(ctx, o, ctl.Request{Kind: kind}, func(r *ctl.Response) { showReload(a.stdout, r.Reload, applied) })
	}
}

func showReload(w io.Writer, r *ctl.Reload, applied string) {
	for _, s := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", printable(s))
	}
	if len(r.Applied)+len(r.Restart) == 0 {
		fmt.Fprintln(w, "the daemon runs with what its sources say")
		return
	}
	var rows [][]string
	add := func(cs []ctl.ConfigChange, what string) {
		for _, c := range cs {
			rows = append(rows, []string{c.Key, cell(c.Old, `""`), cell(c.New, `""`), cell(c.Origin, "unknown"), what})
		}
	}
	add(r.Applied, applied)
	add(r.Restart, "waits for a restart")
	showTable(w, []string{"KEY", "RUNNING", "CONFIGURED", "FROM", "WHAT"}, nil, rows)
}

// configValidateVerb checks a file, with its drop-ins, without a daemon.
func configValidateVerb(*flag.FlagSet) action {
	return func(_ context.Context, a *app, o *options, file string) int {
		s := config.Sources{File: file, UID: os.Getuid(), Environ: []string{"XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR")}}
		if os.Getenv("XDG_RUNTIME_DIR") == "" { // the socket's path does not matter here
			s.UID = 0
		}
		if _, err := s.Load(); err != nil {
			return a.badFile(err)
		}
		files, err := s.Files()
		if err != nil {
			return a.badFile(err)
		}
		fmt.Fprintf(a.stdout, "valid: %s\n", strings.Join(files, " "))
		return exitOK
	}
}

// badFile reports a configuration with mistakes.
func (a *app) badFile(err error) int {
	fmt.Fprintf(a.stderr, "rdsctl: %s\n", err)
	code, _ := exitOf(err)
	return code
}

// configDocsVerb prints a file with every key, its documentation and default.
func configDocsVerb(*flag.FlagSet) action {
	return func(_ context.Context, a *app, _ *options, _ string) int {
		_, err := io.WriteString(a.stdout, config.Docs())
		if err != nil {
			fmt.Fprintf(a.stderr, "rdsctl: %v\n", err)
			return exitFailed
		}
		return exitOK
	}
}
