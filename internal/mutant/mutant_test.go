//go:build !mutant

package mutant_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/mutant"
)

// TestNoTrace: the daemon as users build it has no symbol of this package and no name of a
// variant. A build with the tag has both, so the test can fail.
func TestNoTrace(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the daemon twice")
	}
	for _, tag := range []bool{false, true} {
		out := filepath.Join(t.TempDir(), "rdsd")
		args := []string{"build", "-buildvcs=false", "-o", out}
		if tag {
			args = append(args, "-tags", "mutant")
		}
		cmd := exec.Command("go", append(args, "github.com/rdsd/rdsd/cmd/rdsd")...)
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		// The path of the package stays in the list of linked packages.
		for _, s := range []string{"internal/mutant.On", string(mutant.MarkBeforeDrain), "RDSD_MUTANT"} {
			if found := bytes.Contains(b, []byte(s)); found != tag {
				t.Errorf("with the tag: %v, %q in the binary: %v", tag, s, found)
			}
		}
	}
}

// TestOneLine: each variant is used at exactly one place of the tree, and each place names
// a variant of the list.
func TestOneLine(t *testing.T) {
	src, err := os.ReadFile("mutant.go")
	if err != nil {
		t.Fatal(err)
	}
	idents := map[string]mutant.Name{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+)\s+Name = "([a-z-]+)"`).FindAllStringSubmatch(string(src), -1) {
		idents[m[1]] = mutant.Name(m[2])
	}
	if len(idents) < 25 || len(idents) != len(mutant.Names()) {
		t.Errorf("%d variants, %d in Names", len(idents), len(mutant.Names()))
	}
	places := map[string][]string{}
	for _, dir := range []string{"conn", "conn/internal/crossing", "conn/msg", "conn/tcp", "rdmaop", "rds", "internal/config", "internal/daemon", "internal/engine", "internal/handover", "internal/ipc", "internal/logqueue", "internal/metrics", "internal/rdstcp", "internal/shm", "internal/stats", "verbs/soft", "verbs/soft/tls13"} {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue // may quote a line with a variant
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`mutant\.On\(mutant\.(\w+)\)`).FindAllStringSubmatch(string(b), -1) {
				places[m[1]] = append(places[m[1]], filepath.Base(f))
			}
		}
	}
	for id, n := range idents {
		if !slices.Contains(mutant.Names(), n) {
			t.Errorf("%s is not in Names", id)
		}
		if len(places[id]) != 1 {
			t.Errorf("%s is in %d places: %s", id, len(places[id]), strings.Join(places[id], ", "))
		}
	}
	for id := range places {
		if idents[id] == "" {
			t.Errorf("%s has no name", id)
		}
	}
}

func TestOff(t *testing.T) {
	t.Setenv("RDSD_MUTANT", string(mutant.LastCredit))
	if mutant.On(mutant.LastCredit) {
		t.Error("on, in a build without the tag")
	}
}
