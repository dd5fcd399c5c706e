// Package librds tests the C library beside it: it builds the library with the system's C
// compiler and runs programs that use it against daemons in the test's process.
package librds

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// builds are the directories that make has filled, by what SANITIZE was.
var builds struct {
	mu  sync.Mutex
	dir map[string]string
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range builds.dir {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// built builds the library and its test programs, once for each sanitizer, and returns
// where they are. It skips the test without a C compiler.
func built(t *testing.T, sanitize string) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	for _, tool := range []string{cc, "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("librds is NOT tested: it needs a C compiler and make (%v): apt-get install -y --no-install-recommends gcc libc6-dev make", err)
		}
	}
	builds.mu.Lock()
	defer builds.mu.Unlock()
	if dir, done := builds.dir[sanitize]; done {
		return dir
	}
	dir, err := os.MkdirTemp("", "librds")
	if err != nil {
		t.Fatal(err)
	}
	if builds.dir == nil {
		builds.dir = map[string]string{}
	}
	args := []string{"-s", "-j4", "OUT=" + dir, "SANITIZE=" + sanitize, "CFLAGS=-O1 -g1", "driver", "all"}
	out, err := exec.Command("make", args...).CombinedOutput()
	if err != nil {
		os.RemoveAll(dir)
		t.Fatalf("make %v: %v\n%s", args, err, out)
	}
	builds.dir[sanitize] = dir
	return dir
}

// program is a program of tests/ as a command. A sanitizer that finds something makes it
// fail.
func program(t *testing.T, sanitize, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(built(t, sanitize), name), args...)
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=1:abort_on_error=0", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1",
		"TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")
	return cmd
}
