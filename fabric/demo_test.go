package fabric

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/test/child"
)

// demo returns the command of make demo-mpi, whose temporary files are in tmp, or skips the test.
func demo(t *testing.T, tmp string, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("runs Open MPI for seconds")
	}
	for _, name := range []string{"mpirun", "mpicc", "ip"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("no " + name + " (apt-get install openmpi-bin libopenmpi-dev iproute2)")
		}
	}
	if out, err := exec.Command("unshare", "-n", "-m", "-p", "-f", "--mount-proc", "-U", "-r", "true").CombinedOutput(); err != nil {
		t.Skipf("no user namespaces: %s", out)
	}
	bin := t.TempDir()
	if err := os.Symlink(build(t, ""), filepath.Join(bin, "fabric")); err != nil {
		t.Fatal(err)
	}
	finish(t, exec.Command("go", "build", "-buildvcs=false", "-o", bin+"/", "../cmd/rdsd", "../cmd/rdsctl"))
	for _, name := range []string{"../scripts/demo-mpi.sh", "../scripts/lib.sh", "../examples/mpi/sums.c"} {
		if _, err := os.ReadFile(name); err != nil { // so that go test knows of what it depends
			t.Fatal(err)
		}
	}
	cmd := exec.Command("../scripts/demo-mpi.sh", args...)
	cmd.Env = child.Env("BIN="+bin, "TMPDIR="+tmp)
	return cmd
}

// short makes a folder whose paths fit a unix socket's address.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mpi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestDemo: an MPI job ends well although its connection is reset and both daemons are replaced.
func TestDemo(t *testing.T) {
	out := finish(t, demo(t, short(t), "4", "2", ""))
	for _, want := range []string{"both daemons have been replaced", " checked, 0 wrong", "the job noticed none"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo does not say %q:\n%s", want, out)
		}
	}
}

// TestDemoEnds: a demo that is ended amid the job leaves no process and no file.
func TestDemoEnds(t *testing.T) {
	tmp := short(t)
	p, err := child.Start(demo(t, tmp, "60", "2", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if !p.Until(patience(t), func() bool { return p.Stdout.Has("5 s: ") }) {
		t.Fatalf("no job:\n%s%s", p.Stdout.String(), p.Stderr.String())
	}
	if n := processes(tmp); n < 5 { // two daemons, mpirun, two ranks
		t.Errorf("%d processes of the demo are found, want 5 at least", n)
	}
	p.Signal(syscall.SIGTERM)
	if !p.Wait(patience(t)) || p.Code() != 130 {
		t.Errorf("%v, want status 130\n%s", p.Err(), p.Stderr.String())
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("files stayed: %v", left)
	}
	if n := processes(tmp); n > 0 {
		t.Errorf("%d processes stayed", n)
	}
}

// TestDemoUsage: wrong arguments are named before anything is started.
func TestDemoUsage(t *testing.T) {
	for _, args := range [][]string{{"3", "2", ""}, {"30", "3", ""}, {"30"}} {
		out, err := exec.Command("../scripts/demo-mpi.sh", args...).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("usage: demo-mpi.sh")) {
			t.Errorf("%v: %v, %s, want the usage", args, err, out)
		}
	}
}

// processes counts those whose temporary files are in dir.
func processes(dir string) (n int) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		if env, _ := os.ReadFile(name); bytes.Contains(env, []byte("TMPDIR="+dir)) {
			n++
		}
	}
	return n
}
