package cbuild

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// needs is what builds and runs package rds for Python.
const needs = "import cffi, setuptools, numpy, os, sysconfig; assert os.path.exists(sysconfig.get_config_h_filename())"

// Python is package rds for Python, built with the C library in one folder. Tests may use it at the
// same time.
type Python struct {
	mu  sync.Mutex
	dir string
}

// interpreter is a python3 that builds the package: Debian's, or the first in PATH.
func interpreter(t testing.TB) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", needs).Run() == nil {
			return python
		}
	}
	t.Skip("package rds for Python is NOT tested: no python3 has its header files, cffi, setuptools and numpy: " +
		"apt-get install -y --no-install-recommends python3-dev python3-cffi python3-setuptools python3-numpy")
	return ""
}

// Command is a command of the interpreter with the package. It skips the test if the package cannot
// be built. root is the folder of the repository, and librds returns the folder with librds.a.
func (p *Python) Command(t testing.TB, root string, librds func() string, args ...string) *exec.Cmd {
	t.Helper()
	python := interpreter(t)
	built := librds() // may skip
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir == "" {
		if err := p.build(python, root, built); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(p.dir, "lib"), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func (p *Python) build(python, root, librds string) error {
	dir, err := os.MkdirTemp("", "cbuild")
	if err != nil {
		return err
	}
	cmd := exec.Command(python, "setup.py", "-q", "build", "--build-base", dir, "--build-lib", filepath.Join(dir, "lib"))
	cmd.Dir = filepath.Join(root, "python")
	cmd.Env = append(os.Environ(), "RDS_LIBRDS="+librds, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	p.dir = dir
	return nil
}

// Remove removes what was built.
func (p *Python) Remove() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}
