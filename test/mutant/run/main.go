// Command run shows that the tests catch broken code. For each variant of package mutant it
// runs its checks twice: without the variant, where a check must pass, and with the variant,
// where it must fail. It prints a table. Its status is 0 if all checks did so.
//
//	go run ./test/mutant/run [-short] [-v] [variant...]
//
// With -exec it runs a command whose calls of the go command build the variants in. Of these
// the environment variable RDSD_MUTANT turns one on.
//
//	[RDSD_MUTANT=variant] go run ./test/mutant/run -exec command [argument...]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	short   = flag.Bool("short", false, "only the five that are quickest to check")
	verbose = flag.Bool("v", false, "print what each check said")
	jobs    = flag.Int("j", 2, "checks at once")
	execute = flag.Bool("exec", false, "run a command with the variants built in")
)

// five are the variants of the short form: of different layers, and quick to check.
var five = []string{"last-credit", "wake-up-lost", "mark-before-drain", "grant-unchecked", "revoke-doesnt-wait"}

// limit ends a check that hangs. A check that is ended so has not failed. It is longer
// than the two minutes for which tests wait for what does not come.
const limit = 4 * time.Minute

func main() {
	flag.Parse()
	if err := run(os.Stdout, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) error {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list -m: %w", err)
	}
	dir, err := os.MkdirTemp("", "rdsd-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &runner{root: strings.TrimSpace(string(root)), dir: dir, ok: map[check]error{}}
	all, err := load(r.root)
	if err != nil {
		return err
	}
	if r.overlay, err = overlay(r.root, dir, all); err != nil {
		return err
	}
	if r.cc, err = compiler(dir); err != nil {
		return err
	}
	if *execute {
		return r.exec(all, args)
	}
	if *short {
		args = five
	}
	todo, err := choose(all, args)
	if err != nil {
		return err
	}
	return r.table(w, todo)
}

// choose returns the checks of the named variants. Without names it returns all checks.
func choose(all []variant, names []string) (todo []check, err error) {
	for _, v := range all {
		if len(names) == 0 || slices.Contains(names, v.name) {
			todo = append(todo, v.checks...)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(all, func(v variant) bool { return v.name == n }) {
			return nil, fmt.Errorf("%q is no variant: see test/mutant/variants", n)
		}
	}
	return todo, nil
}

// runner runs checks in test binaries that are built once.
type runner struct {
	root    string // the module's directory
	dir     string
	overlay string // see go help build
	cc      string // a C compiler with the variants
	mu      sync.Mutex
	ok      map[check]error // result without a variant
}

// exec runs a command for which all variants are built in.
func (r *runner) exec(all []variant, args []string) error {
	if on := os.Getenv("RDSD_MUTANT"); on != "" {
		if _, err := choose(all, []string{on}); err != nil {
			return fmt.Errorf("RDSD_MUTANT: %w", err)
		}
	}
	if len(args) == 0 {
		return errors.New("-exec needs a command")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+r.overlay), "CC="+r.cc)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w", cmd, err)
	}
	return nil
}

// table writes the table to w. The error says how many were not caught.
func (r *runner) table(w io.Writer, todo []check) error {
	start := time.Now()
	for _, c := range todo {
		if err := r.build(c.pkg); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "%-21s %-16s %-29s %7s\n", "variant", "package", "check", "time")
	results := make([]chan string, len(todo))
	turn := make(chan struct{}, *jobs)
	survived := 0
	for i, c := range todo {
		results[i] = make(chan string, 1)
		go func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			begun := time.Now()
			verdict := "caught"
			if err := r.try(c); err != nil {
				verdict = "NOT CAUGHT: " + err.Error()
			}
			results[i] <- fmt.Sprintf("%-21s %-16s %-29s %6.1fs  %s", c.variant, c.pkg, c.test, time.Since(begun).Seconds(), verdict)
		}()
	}
	for _, res := range results {
		line := <-res
		fmt.Fprintln(w, line)
		if !strings.HasSuffix(line, "caught") {
			survived++
		}
	}
	fmt.Fprintf(w, "%d of %d caught, %.0f s\n", len(todo)-survived, len(todo), time.Since(start).Seconds())
	if survived > 0 {
		return fmt.Errorf("%d not caught", survived)
	}
	return nil
}

func (r *runner) binary(pkg string) string {
	return filepath.Join(r.dir, strings.ReplaceAll(pkg, "/", "-")+".test")
}

// build makes pkg's test binary, with the variants.
func (r *runner) build(pkg string) error {
	if _, err := os.Stat(r.binary(pkg)); err == nil {
		return nil
	}
	cmd := exec.Command("go", "test", "-c", "-overlay", r.overlay, "-o", r.binary(pkg), "./"+pkg)
	cmd.Dir = r.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the tests of %s: %v\n%s", pkg, err, out)
	}
	return nil
}

// try runs c without and with its variant.
func (r *runner) try(c check) error {
	if err := r.clean(c); err != nil {
		return err
	}
	out, err := r.test(c)
	if *verbose {
		_, _ = os.Stdout.Write(out)
	}
	switch {
	case err == nil:
		return fmt.Errorf("survived")
	case !c.failed(out):
		return fmt.Errorf("failed otherwise: %w\n%s", err, tail(out))
	}
	return nil
}

// clean runs c without a variant. Variants that share a check share the result.
func (r *runner) clean(c check) error {
	c.variant = ""
	r.mu.Lock()
	err, done := r.ok[c]
	r.mu.Unlock()
	if done {
		return err
	}
	if out, e := r.test(c); e != nil || !bytes.Contains(out, []byte("--- PASS: ")) {
		err = fmt.Errorf("fails without it: %v\n%s", e, tail(out))
	}
	r.mu.Lock()
	r.ok[c] = err
	r.mu.Unlock()
	return err
}

func (r *runner) test(c check) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binary(c.pkg), "-test.run", pattern(c.test), "-test.v", "-test.timeout", (limit - time.Second).String())
	cmd.Dir = filepath.Join(r.root, c.pkg)
	cmd.Env = append(os.Environ(), "RDSD_MUTANT="+c.variant, "CC="+r.cc)
	return cmd.CombinedOutput()
}

// pattern is the -run pattern that matches exactly the test with this path.
func pattern(test string) string {
	return "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
}

// failed reports whether the named test itself failed. A test that panics in the code under
// test has failed, a test that hangs has not.
func (c check) failed(out []byte) bool {
	top, _, _ := strings.Cut(c.test, "/")
	return bytes.Contains(out, []byte("--- FAIL: "+top)) && !bytes.Contains(out, []byte("panic: test timed out"))
}

func tail(out []byte) []byte { return out[max(0, len(out)-2000):] }
