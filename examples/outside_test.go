package examples

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stranger is the module of a user of rdsd. It is in a temporary directory outside this
// module and replaces rdsd by the checkout. So it cannot import internal packages.
type stranger struct{ dir string }

var outside stranger

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if outside, err = newStranger(); err == nil {
			defer os.RemoveAll(outside.dir)
			err = outside.build(programs)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// newStranger makes the module as `go mod tidy` would leave it: with what rdsd requires. Otherwise
// the go command would look up the requirements of each of these modules, of which a new
// machine's module cache has none.
func newStranger() (s stranger, err error) {
	checkout, err := filepath.Abs("..")
	if err != nil {
		return s, err
	}
	if s.dir, err = os.MkdirTemp("", "rdsd-examples-"); err != nil {
		return s, err
	}
	own, err := os.ReadFile("../go.mod")
	if err != nil {
		return s, err
	}
	_, needs, _ := strings.Cut(string(own), "\nrequire")
	mod := "module example.com/outside\n\ngo 1.26.0\n\nrequire github.com/rdsd/rdsd v0.0.0\n\nrequire" + needs +
		"\nreplace github.com/rdsd/rdsd => " + checkout + "\n"
	if err := os.WriteFile(filepath.Join(s.dir, "go.mod"), []byte(mod), 0o600); err != nil {
		return s, err
	}
	return s, s.copy("../go.sum", "go.sum")
}

// copy copies a file of the checkout to a path of the module.
func (s stranger) copy(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	to = filepath.Join(s.dir, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// tool runs the go command in the module, offline. The modules that rdsd needs must be in
// the module cache.
func (s stranger) tool(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v, outside the module: %w\n%s", cmd, err, out)
	}
	return nil
}

// build builds the programs into the module's directory.
func (s stranger) build(programs []string) error {
	args := []string{"build", "-o", s.dir + "/"}
	for _, p := range programs {
		files, err := filepath.Glob(p + "/*.go")
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := s.copy(f, filepath.Join("programs", f)); err != nil {
				return err
			}
		}
		args = append(args, "./programs/"+p)
	}
	return s.tool(args...)
}

// TestPackageExamples: the examples of the public packages compile outside the module, and
// their output there is the one that they state.
func TestPackageExamples(t *testing.T) {
	const root = ".."
	found := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); n == "internal" || n == "testdata" || rel != "." && strings.HasPrefix(n, ".") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil && rel != "." {
				return fs.SkipDir // a module of its own
			}
			return nil
		}
		if ok, _ := filepath.Match("example*_test.go", d.Name()); !ok || filepath.Dir(rel) == "examples" {
			return nil
		}
		found++
		return outside.copy(file, filepath.Join("packages", rel))
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Errorf("%d files of examples only", found)
	}
	if err := outside.tool("test", "-count=1", "-run=^Example", "./packages/..."); err != nil {
		t.Error(err)
	}
}
