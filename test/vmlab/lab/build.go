package lab

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds a program of this module for Install. flags are flags of go build.
func Build(t *testing.T, pkg string, flags ...string) string {
	t.Helper()
	return goTool(t, "build", filepath.Base(pkg), pkg, flags)
}

// BuildTest builds the tests of a package as a program, NAME.test.
func BuildTest(t *testing.T, pkg string, flags ...string) string {
	t.Helper()
	return goTool(t, "test", filepath.Base(pkg)+".test", pkg, append([]string{"-c"}, flags...))
}

func goTool(t *testing.T, verb, name, pkg string, flags []string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	args := append([]string{verb}, flags...)
	cmd := exec.Command("go", append(args, "-o", file, "github.com/rdsd/rdsd/"+pkg)...)
	cmd.Env = os.Environ()
	for _, f := range flags {
		if f == "ibv" || f == "-tags=ibv" { // the only part of the module that is C
			cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s %s: %v\n%s", verb, pkg, err, out)
	}
	return file
}

// regular is a folder without its sockets and programs.
type regular struct{ dir string }

// Open opens a file.
func (r regular) Open(name string) (fs.File, error) { return os.DirFS(r.dir).Open(name) }

// ReadDir leaves out sockets and programs.
func (r regular) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(os.DirFS(r.dir), name)
	var kept []fs.DirEntry
	for _, e := range all {
		if info, err := e.Info(); e.IsDir() || e.Type().IsRegular() && err == nil && info.Mode()&0o111 == 0 {
			kept = append(kept, e)
		}
	}
	return kept, err
}
