package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rdsd/rdsd/internal/ipc"
)

// preloadName is the library that run sets up.
const preloadName = "librdsd-preload.so"

// runAbout and runFlagsPage are the manual of run, and of the library.
const runAbout = "It puts librdsd-preload.so into LD_PRELOAD and starts the program in its own place. The library stands in front of the C library's " +
	"socket calls. So the program and its children have sockets of the family AF_RDS that are rdsd's, with the kernel's options, control messages and errors; " +
	"all other calls go to the C library. Programs that are linked statically or with another C library, that are set-user-ID or have file capabilities, " +
	"and those that make system calls by themselves, as Go programs do, are not reached; run warns of all but the last."

func runFlagsPage(p *page) {
	fs, _, _ := runFlags(newOptions())
	p.heading("Flags")
	p.terms(flagTerms(fs))
	p.heading("Environment")
	p.terms([]term{
		{"RDSD_SOCKET", "control socket of the daemon, where -socket does not name it; run sets it for the program"},
		{"RDSD_PRELOAD", "path of the library, where -preload does not name it"},
		{"LD_PRELOAD", "what else is preloaded stays, behind the library"},
		{"RDSD_PRELOAD_ERRORS", "with 1, a message that was lost is an error of its socket: ECONNRESET where the peer restarted, ECONNREFUSED where no socket has the port"},
		{"RDSD_PRELOAD_STRICT", "with 1, what -strict does"},
		{"RDSD_PRELOAD_QUIET", "the library does not say why there are no RDS sockets; run sets it if it has said so itself"},
	})
	p.heading("The program")
	p.text("It may send, receive, connect, poll, select and use epoll, register memory of its own, fork and exec. " +
		"Without a daemon socket(AF_RDS) fails with EAFNOSUPPORT. When the daemon ends, calls on its sockets fail with ECONNRESET, and new sockets are the next daemon's. " +
		"In the child of a fork the sockets that the parent had bound fail with ESTALE. Each socket takes three descriptors, and the process four more; they cannot be closed.")
	p.text("The library can be used without rdsctl: LD_PRELOAD=/usr/lib/rdsd/librdsd-preload.so PROGRAM. docs/preload.md and docs/kernel.md (/usr/share/doc/librdsd-preload) have the rest.")
	p.text("Once the program runs, the exit status is the program's.")
}

// runFlags declares the flags of run.
func runFlags(o *options) (fs *flag.FlagSet, library *string, strict *bool) {
	fs = newFlagSet("rdsctl run")
	strict = fs.Bool("strict", false, "a key of RDS_GET_MR is good for those alone who were granted it (RDSD_PRELOAD_STRICT)")
	library = fs.String("preload", "", "`path` of "+preloadName+" (default: RDSD_PRELOAD, or beside rdsctl, or where packages install it)")
	fs.StringVar(&o.socket, "socket", o.socket, "control socket `path` of the daemon (default: RDSD_SOCKET, or the usual places)")
	return fs, library, strict
}

// runProgram is the verb run: it replaces this process by a program that has AF_RDS
// sockets.
func runProgram(ctx context.Context, a *app, o *options, args []string) (int, error) {
	fs, library, strict := runFlags(o)
	if err := fs.Parse(args); err != nil {
		if len(args) > 0 && (args[0] == "--help" || args[0] == "-h") {
			fs.SetOutput(a.stdout)
			fs.PrintDefaults()
		}
		return 0, flagError(fs, "run", err)
	}
	if fs.NArg() == 0 {
		return 0, usagef("run: want a program: rdsctl run -- rds-ping 10.0.0.2")
	}
	lib, err := findPreload(*library)
	if err != nil {
		return exitNotFound, fmt.Errorf("run: %w", err)
	}
	if err := loadable(lib); err != nil {
		return exitUsage, fmt.Errorf("run: %w", err)
	}
	program, err := exec.LookPath(fs.Arg(0))
	if err != nil {
		return exitNotFound, fmt.Errorf("run: %w", err)
	}
	k := kindOf(program, lib)
	if k.why != "" {
		fmt.Fprintf(a.stderr, "rdsctl: run: %s\n", printable(k.why))
	}
	if k.unstartable {
		lib = ""
	}
	env := preloadEnv(os.Environ(), lib, o.socket)
	if *strict {
		env = append(env, "RDSD_PRELOAD_STRICT=1")
	}
	if err := a.daemonAnswers(ctx, o); err != nil {
		fmt.Fprintf(a.stderr, "rdsctl: run: %s; socket(AF_RDS) fails with EAFNOSUPPORT until a daemon answers\n", printable(err.Error()))
		env = append(env, "RDSD_PRELOAD_QUIET=1")
	}
	start := a.exec
	if start == nil {
		start = syscall.Exec
	}
	return exitFailed, fmt.Errorf("run: %s: %w", printable(program), start(program, fs.Args(), env))
}

// daemonAnswers returns why no daemon answers at the control socket, or nil.
func (a *app) daemonAnswers(ctx context.Context, o *options) error {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c, err := a.dial(limited, o.socket)
	if err == nil {
		err = c.Close()
	}
	if errors.Is(err, ipc.ErrNoDaemon) {
		return fmt.Errorf("%w (start rdsd, or name its control socket with -socket)", err)
	}
	return err
}

// findPreload returns the path of the library: at path or, if that is empty, at the first of
// the usual places.
func findPreload(path string) (string, error) {
	if path == "" {
		path = os.Getenv("RDSD_PRELOAD")
	}
	if path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", err
		}
		return filepath.Abs(path)
	}
	var places []string
	if self, err := os.Executable(); err == nil {
		dir := filepath.Dir(self)
		places = append(places, filepath.Join(dir, "librds", preloadName), filepath.Join(dir, preloadName), filepath.Join(dir, "..", "lib", preloadName))
	}
	for _, dir := range []string{"/usr/lib/rdsd", "/usr/local/lib", "/usr/lib"} {
		places = append(places, filepath.Join(dir, preloadName))
	}
	for _, p := range places {
		if _, err := os.Stat(p); err == nil {
			return filepath.Clean(p), nil
		}
	}
	return "", fmt.Errorf("no %s at %s (install the package librdsd-preload, or make preload)", preloadName, strings.Join(places, ", "))
}

// loadable returns an error for a path that LD_PRELOAD cannot name: the loader takes spaces and
// colons for the ends of paths, and has nothing to quote them with.
func loadable(path string) error {
	const instead = "copy or link the library to another path, and name that with -preload"
	if i := strings.IndexAny(path, " :\t\n"); i >= 0 {
		return fmt.Errorf("%q: the loader would split LD_PRELOAD at %q (%s)", path, path[i], instead)
	}
	if strings.Contains(path, "$") {
		return fmt.Errorf("%q: the loader would expand the $ (%s)", path, instead)
	}
	return nil
}

// preloadEnv is env with the library ahead of others that are preloaded, or for lib "" without it.
func preloadEnv(env []string, lib, socket string) []string {
	var to, libs []string
	if lib != "" {
		libs = append(libs, lib)
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case name == "LD_PRELOAD":
			for other := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ':' || r == ' ' }) {
				if filepath.Base(other) != preloadName {
					libs = append(libs, other)
				}
			}
		case name == "RDSD_PRELOAD_QUIET", name == "RDSD_SOCKET" && socket != "":
		default:
			to = append(to, e)
		}
	}
	if socket != "" {
		to = append(to, "RDSD_SOCKET="+socket)
	}
	if len(libs) > 0 {
		to = append(to, "LD_PRELOAD="+strings.Join(libs, ":"))
	}
	return to
}
