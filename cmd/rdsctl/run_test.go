package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
)

// answering is a daemon that answers.
type answering struct{}

func (answering) Call(context.Context, []byte) ([]byte, error) {
	return nil, errors.New("nothing is asked")
}
func (answering) Close() error { return nil }

// TestRun: the program gets the library and the control socket. Without a daemon run says so,
// and the library then does not.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, preloadName)
	script := filepath.Join(dir, "program")
	for _, f := range []string{lib, script} {
		if err := os.WriteFile(f, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("LD_PRELOAD", "/other.so")
	t.Setenv("RDSD_SOCKET", "/old.sock")
	for _, tc := range []struct {
		args []string
		dial error
		code int
		want string // in standard error
		env  []string
	}{
		{[]string{"run", "-preload", lib, "--", script, "-x"}, nil, exitFailed, "stopped here", []string{"LD_PRELOAD=" + lib + ":/other.so", "RDSD_SOCKET=/old.sock"}},
		{[]string{"run", "-preload", lib, "-socket", "/s", script, "-x"}, nil, exitFailed, "stopped here", []string{"RDSD_SOCKET=/s"}},
		{[]string{"run", "-preload", lib, script, "-x"}, fmt.Errorf("/s: %w", ipc.ErrNoDaemon), exitFailed, "EAFNOSUPPORT", []string{"RDSD_PRELOAD_QUIET=1"}},
		{[]string{"run", "-preload", lib + "x", script}, nil, exitNotFound, preloadName + "x", nil},
		{[]string{"run", "-preload", lib, script + "x"}, nil, exitNotFound, "program", nil},
		{[]string{"run", "-preload", lib}, nil, exitUsage, "want a program", nil},
		{[]string{"run", "-wrong"}, nil, exitUsage, "-wrong", nil},
	} {
		var out, errs bytes.Buffer
		var argv, env []string
		a := &app{stdout: &out, stderr: &errs,
			dial: func(context.Context, string) (caller, error) { return answering{}, tc.dial },
			exec: func(_ string, args, vars []string) error {
				argv, env = args, vars
				return errors.New("stopped here")
			}}
		if code := a.run(t.Context(), tc.args); code != tc.code || !strings.Contains(errs.String(), tc.want) {
			t.Errorf("%v: status %d, %q", tc.args, code, errs.String())
		}
		if tc.env != nil && !slices.Equal(argv, []string{script, "-x"}) {
			t.Errorf("%v: the program's arguments are %q", tc.args, argv)
		}
		for _, e := range tc.env {
			if !slices.Contains(env, e) {
				t.Errorf("%v: no %s in the environment", tc.args, e)
			}
		}
		if tc.dial == nil && slices.Contains(env, "RDSD_PRELOAD_QUIET=1") {
			t.Errorf("%v: quiet although the daemon answers", tc.args)
		}
	}
}

// TestLoadable: a path that the loader would take for something else is refused, however it came
// to be the library's.
func TestLoadable(t *testing.T) {
	script := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a b", "a:b", "a\tb", "a\nb", "$LIB"} {
		dir := filepath.Join(t.TempDir(), name)
		lib := filepath.Join(dir, preloadName)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(lib, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, how := range []string{"flag", "variable", "relative"} {
			args := []string{"run", script}
			t.Setenv("RDSD_PRELOAD", "")
			switch how {
			case "flag":
				args = []string{"run", "-preload", lib, script}
			case "variable":
				t.Setenv("RDSD_PRELOAD", lib)
			case "relative":
				t.Chdir(dir)
				args = []string{"run", "-preload", preloadName, script}
			}
			var out, errs bytes.Buffer
			a := &app{stdout: &out, stderr: &errs,
				dial: func(context.Context, string) (caller, error) { return answering{}, nil },
				exec: func(string, []string, []string) error { t.Errorf("%s, %s: started", name, how); return nil }}
			if code := a.run(t.Context(), args); code != exitUsage || !strings.Contains(errs.String(), "the loader would") || strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("%q, %s: status %d, %q", name, how, code, errs.String())
			}
		}
	}
}
