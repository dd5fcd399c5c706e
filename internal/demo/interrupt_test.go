package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain lets the test binary be the demo, and its keeper.
func TestMain(m *testing.M) {
	if os.Getenv(asDemo) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// asDemo is in the environment of the demo under test and all its children.
const asDemo = "RDSD_TEST_AS_DEMO"

// programs builds what the demo starts.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, pkg := range []string{"../../cmd/rdsd", "../../cmd/rdsctl", "../../examples/blockstore"} {
		b := exec.Command("go", "build", "-buildvcs=false", "-o", dir, pkg)
		b.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := b.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", b, err, out)
		}
	}
	return dir
}

// demoRun is one demo as a process, with a temporary directory and a mark in
// the environment of its own.
type demoRun struct {
	*exec.Cmd
	out  bytes.Buffer
	tmp  string
	mark string
}

func newRun(t *testing.T, bin string, args ...string) *demoRun {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "demo-test-") // t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	r := &demoRun{Cmd: exec.Command(self, append([]string{"-bin", bin}, args...)...), tmp: tmp}
	r.mark = asDemo + "=" + tmp
	r.Env = append(os.Environ(), r.mark, "TMPDIR="+tmp)
	r.Stdout, r.Stderr = &r.out, &r.out
	return r
}

// left lists processes and files of the run that are still there.
func (r *demoRun) left() (left []string) {
	files, _ := filepath.Glob(r.tmp + "/*")
	left = append(left, files...)
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(r.mark+"\x00")) {
			cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			left = append(left, fmt.Sprintf("%s: %s", path, strings.ReplaceAll(string(cmd), "\x00", " ")))
		}
	}
	return left
}

// TestDemo is the demo as it is, on files of several sizes.
func TestDemo(t *testing.T) {
	bin := programs(t)
	for _, size := range []int{0, 1, 4096, 1_000_001, 16 << 20} {
		file := filepath.Join(t.TempDir(), "a file")
		content := make([]byte, size)
		for i := 0; i < size; i += 8 {
			content[i] = byte(rand.Uint32())
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRun(t, bin, "-file", file)
		if err := r.Run(); err != nil || !strings.Contains(r.out.String(), fmt.Sprintf("\ndemo: verified %d bytes", size)) {
			t.Fatalf("%d bytes: %v\n%s", size, err, &r.out)
		}
		if left := r.left(); left != nil {
			t.Fatalf("%d bytes: left behind: %q", size, left)
		}
	}
}

// TestDemoRefuses: the demo says what is wrong with FILE and starts nothing.
func TestDemoRefuses(t *testing.T) {
	for file, says := range map[string]string{
		"/nonexistent": "demo: FILE: stat /nonexistent: no such file",
		"/dev/null":    "demo: FILE: /dev/null is not a regular file",
	} {
		r := newRun(t, t.TempDir(), "-file", file)
		if err := r.Run(); err == nil || !strings.HasPrefix(r.out.String(), says) {
			t.Errorf("%v, %q, want a failure that says %q", err, &r.out, says)
		}
	}
	r := newRun(t, t.TempDir(), "-file", os.Args[0]) // there is no rdsd
	if err := r.Run(); err == nil || !strings.Contains(r.out.String(), "rdsd: no such file") {
		t.Errorf("%v, %q, want a failure that names rdsd", err, &r.out)
	}
	if left := r.left(); left != nil {
		t.Errorf("left behind: %q", left)
	}
}

// TestInterrupt: no process and no file is left, however and whenever the demo is
// interrupted.
func TestInterrupt(t *testing.T) {
	bin := programs(t)
	rounds := 30
	if testing.Short() {
		rounds = 6
	}
	whole := time.Now()
	if r := newRun(t, bin, "-mib", "16"); r.Run() != nil {
		t.Fatalf("demo failed:\n%s", &r.out)
	}
	length := time.Since(whole)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range rounds {
		sig := []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGKILL}[i%4]
		after := time.Duration(random.Int64N(int64(length)))
		if i < 4 {
			after = 0
		}
		r := newRun(t, bin, "-mib", "16")
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after) // the moment is the test's input
		for i < 4 && !strings.Contains(fmt.Sprint(r.left()), "/rdsd ") && time.Since(whole) < 2*time.Minute {
			time.Sleep(time.Millisecond) // these meet a daemon at least
		}
		_ = r.Process.Signal(sig)
		err := r.Wait()
		// After SIGKILL the children end some time later. After another signal nothing may
		// be left when the demo has ended.
		left := r.left()
		for deadline := time.Now().Add(time.Minute); sig == unix.SIGKILL && left != nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
			left = r.left()
		}
		if left != nil {
			t.Fatalf("seed %#x, %v after %v: %v, left behind: %q\n%s", seed, sig, after, err, left, &r.out)
		}
	}
}
