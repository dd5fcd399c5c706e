// Package python tests package rds for Python. Its conformance with librds is tested there.
package python

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/test/cbuild"
	"github.com/rdsd/rdsd/rdstest"
)

var (
	librds = cbuild.Library{Name: "librds", Targets: []string{"-C", "../librds", "all"}}
	python cbuild.Python
)

func TestMain(m *testing.M) { librds.Main(m, python.Remove) }

// run runs the interpreter with package rds, for the daemon d, and returns what it prints.
func run(t *testing.T, d *rdstest.Daemon, args ...string) string {
	t.Helper()
	cmd := python.Command(t, "..", func() string { return librds.Build(t, "") }, args...)
	cmd.Env = append(cmd.Env, "RDSD_SOCKET="+d.Socket())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestBad: the mistakes of a program are errors that say what is wrong, and memory that is let go of
// harms nobody.
func TestBad(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	if out := run(t, d, "-X", "faulthandler", "testdata/bad.py", d.Socket(), d.Addr().String()); out != "ok\n" {
		t.Error(out)
	}
}

// TestTasks: tasks of an event loop share a socket, do all that threads do, and do not keep the loop busy.
func TestTasks(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	if out := run(t, d, "-X", "dev", "testdata/tasks.py", d.Socket(), d.Addr().String()); out != "ok\n" {
		t.Error(out)
	}
}

// TestRate: the program that measures the rate says one.
func TestRate(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	out := run(t, d, "testdata/rate.py", d.Addr().String(), "0.2")
	if !strings.HasSuffix(out, " million messages of 64 bytes a second\n") {
		t.Error(out)
	}
	t.Log(out)
}

// TestTour: the code of docs/python.md does what the page says.
func TestTour(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	page, err := os.ReadFile("../docs/python.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, m := range regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		code.WriteString(m[1])
	}
	_, want, _ := strings.Cut(string(page), "The output of it all:\n\n```\n")
	want, _, _ = strings.Cut(want, "```")
	if got := run(t, d, "-c", strings.ReplaceAll(code.String(), "10.0.0.1", d.Addr().String())); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTypes: the hints are what mypy infers.
func TestTypes(t *testing.T) {
	mypy, err := exec.LookPath("mypy")
	if err != nil {
		t.Skip("the type hints are NOT tested: apt-get install -y --no-install-recommends mypy")
	}
	out, err := exec.Command(mypy, "--strict", "--cache-dir", t.TempDir(), "src/rds").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWheel: the wheel is for every Python from 3.9 on, works by itself, and has the version of librds.
func TestWheel(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	run(t, d, "-c", "import rds") // or skipped
	dir, built := t.TempDir(), librds.Build(t, "")
	if err := errors.Join(os.Symlink(filepath.Join(built, "librds.a"), filepath.Join(dir, "librds.a")),
		os.WriteFile(filepath.Join(dir, "rds.pc"), []byte("Name: rds\nVersion: v1.2.0-7-gabc\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	build := python.Command(t, "..", func() string { return librds.Build(t, "") }, "setup.py", "-q", "build", "--build-base", filepath.Join(dir, "build"),
		"egg_info", "--egg-base", dir, "bdist_wheel", "--dist-dir", dir)
	build.Env = slices.DeleteFunc(append(build.Env, "RDS_LIBRDS="+dir), func(s string) bool { return strings.HasPrefix(s, "VERSION=") })
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wheels, _ := filepath.Glob(filepath.Join(dir, "rds-1.2.0+7.gabc-cp39-abi3-linux_*.whl"))
	if len(wheels) != 1 {
		t.Fatalf("%d wheels for any Python from 3.9 on", len(wheels))
	}
	list := "import sys, zipfile; print(zipfile.ZipFile(sys.argv[1]).namelist())"
	if out := run(t, d, "-c", list, wheels[0]); !strings.Contains(out, "rds/_rds.abi3.so") || !strings.Contains(out, "rds/py.typed") || !strings.Contains(out, "rds/aio.py") {
		t.Error(out)
	}
}
