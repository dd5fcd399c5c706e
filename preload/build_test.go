// Package preload tests the preload library beside it: it builds the library with the system's C
// compiler, and runs programs that know nothing of rdsd against daemons in the test's process.
package preload

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/test/cbuild"
	"github.com/rdsd/rdsd/rdstest"
)

const library = "librdsd-preload.so"

// patience limits how long a program may take.
const patience = 2 * time.Minute

var build = cbuild.Library{Name: "the preload library", Targets: []string{"all", "programs"}}

func TestMain(m *testing.M) { build.Main(m) }

// built is where the library and its test programs are.
func built(t *testing.T, sanitize string) string {
	t.Helper()
	return build.Build(t, sanitize)
}

// runtimes are the libraries of the compiler's sanitizers. They have to come first, but for that
// of the thread sanitizer.
func runtimes(t *testing.T, sanitize string) []string {
	t.Helper()
	var libs []string
	for s := range strings.SplitSeq(sanitize, ",") {
		name := map[string]string{"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}[s]
		if name == "" {
			continue
		}
		out, err := exec.Command(cbuild.Compiler(), "-print-file-name="+name).Output()
		if err != nil {
			t.Fatal(err)
		}
		libs = append(libs, strings.TrimSpace(string(out)))
	}
	return libs
}

// preloaded is a command that runs under the library, with the daemon d.
func preloaded(t *testing.T, d *rdstest.Daemon, sanitize, name string, args ...string) *exec.Cmd {
	t.Helper()
	return preloadedAt(t, d.Socket(), sanitize, name, args...)
}

// preloadedAt is preloaded with the control socket of the daemon.
func preloadedAt(t *testing.T, socket, sanitize, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	libs := append(runtimes(t, sanitize), filepath.Join(built(t, sanitize), library))
	if sanitize == "thread" {
		// Within a call that went through its runtime, the runtime does not follow locks.
		slices.Reverse(libs)
	}
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+strings.Join(libs, ":"), "RDSD_SOCKET="+socket,
		"ASAN_OPTIONS=detect_leaks=0", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1",
		// The library's thread has ended when the program ends, but the session, which would join it, has not.
		"TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0")
	return cmd
}

// finish runs cmd, fails the test if cmd fails, and returns its output.
func finish(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// talk is a program that says when it is ready for the next line of its input.
type talk struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   *os.File
	out  *bufio.Scanner
	errs bytes.Buffer
}

func startTalk(t *testing.T, cmd *exec.Cmd) *talk {
	t.Helper()
	k := &talk{t: t, cmd: cmd}
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr, k.in = stdin, &k.errs, in
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	stdin.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	k.out = bufio.NewScanner(out)
	return k
}

// ready waits until the program is ready.
func (k *talk) ready() {
	k.t.Helper()
	if !k.out.Scan() {
		err := k.cmd.Wait()
		k.t.Fatalf("%v: %v\n%s", k.cmd.Args, err, k.errs.String())
	}
}

func (k *talk) next() {
	k.t.Helper()
	if _, err := k.in.WriteString("\n"); err != nil {
		k.t.Fatal(err)
	}
}

func (k *talk) finish() {
	k.t.Helper()
	if err := k.cmd.Wait(); err != nil {
		k.t.Errorf("%v: %v\n%s", k.cmd.Args, err, k.errs.String())
	}
}
