package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCompareNamesWhatDiffers(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for name, content := range map[string]string{"a": "same", "b": "same", "c": "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"a", "b", "c"} {
		paths = append(paths, filepath.Join(dir, n))
	}
	if _, err := compare(t.Context(), []string{"source", "out"}, paths[:2]); err != nil {
		t.Errorf("equal files: %v", err)
	}
	if _, err := compare(t.Context(), []string{"source", "out", "back"}, paths); err == nil || !strings.HasPrefix(err.Error(), "back has") {
		t.Errorf("err = %v, want one that names back", err)
	}
}

func TestLimitedWriter(t *testing.T) {
	var b bytes.Buffer
	w := &limitedWriter{w: &b, left: 5}
	if _, err := w.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("defg")); n != 2 || !errors.Is(err, errFull) {
		t.Errorf("wrote %d, %v; want 2 and errFull", n, err)
	}
	if b.String() != "abcde" {
		t.Errorf("wrote %q", b.String())
	}
}

func TestProcessesAreSessionsOfTheirOwnAndEnd(t *testing.T) {
	p := &processes{}
	x, err := p.start(command{name: "parent", program: "/bin/sh", args: []string{"-c", "sleep 1000 & echo child $! up >&2; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.waitFor(t.Context(), " up"); err != nil {
		t.Fatal(err)
	}
	pid := x.Pid()
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("session %d, %v; want %d", sid, err, pid)
	}
	child := strings.Fields(x.lastLine())[2]
	p.stopAll()
	select {
	case <-x.Ended():
	default:
		t.Error("stopAll returned while the process runs")
	}
	// The child was signalled with its group. The kernel ends it some time later.
	for deadline := time.Now().Add(2 * time.Minute); runs(child); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("process %s, a child's child, still runs", child)
		}
	}
}

// runs reports whether a process exists and is not a zombie.
func runs(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestRunReportsFailureAndCancel(t *testing.T) {
	p := &processes{}
	if _, err := p.run(t.Context(), command{name: "failing", program: "/bin/sh", args: []string{"-c", "echo why >&2; exit 3"}}); err == nil ||
		!strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "why") {
		t.Errorf("err = %v, want status and last line", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.run(ctx, command{name: "long", program: "/bin/sleep", args: []string{"1000"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	p.stopAll()
}
