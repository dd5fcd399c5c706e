// Package cbuild builds the C libraries of this repository for their tests.
package cbuild

import (
	"os"
	"os/exec"
	"sync"
	"testing"
)

// Library is a folder with a Makefile that takes OUT, SANITIZE, CC and CFLAGS. Tests may use it
// at the same time.
type Library struct {
	Name    string   // in messages
	Targets []string // of make

	mu   sync.Mutex
	dirs map[string]string // that make has filled, by what SANITIZE was
}

// Compiler is the C compiler: $CC, or cc.
func Compiler() string {
	if cc := os.Getenv("CC"); cc != "" {
		return cc
	}
	return "cc"
}

// Build builds the targets with a sanitizer, once for each, and returns where they are. It skips
// the test without a C compiler or make.
func (l *Library) Build(t testing.TB, sanitize string) string {
	t.Helper()
	for _, tool := range []string{Compiler(), "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is NOT tested: it needs a C compiler and make (%v): apt-get install -y --no-install-recommends gcc libc6-dev make", l.Name, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if dir, done := l.dirs[sanitize]; done {
		return dir
	}
	dir, err := os.MkdirTemp("", "cbuild")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-s", "-j4", "OUT=" + dir, "SANITIZE=" + sanitize, "CFLAGS=-O1 -g1"}, l.Targets...)
	if out, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		t.Fatalf("make %v: %v\n%s", args, err, out)
	}
	if l.dirs == nil {
		l.dirs = map[string]string{}
	}
	l.dirs[sanitize] = dir
	return dir
}

// Main runs m's tests, removes what was built, calls after, and ends the program.
func (l *Library) Main(m *testing.M, after ...func()) {
	code := m.Run()
	for _, f := range after {
		f()
	}
	for _, dir := range l.dirs {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}
