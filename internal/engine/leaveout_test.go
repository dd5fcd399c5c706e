//go:build mutant

package engine

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/internal/handover"
)

// TestEachValueMatters: whatever value of the state of an engine is left out, a scenario of
// TestGoesOn notices, or the next engine does not take the state. There is an exception for each
// value of which that cannot be.
func TestEachValueMatters(t *testing.T) {
	TestGoesOn(t)
	if t.Failed() {
		return
	}
	places := handover.Places()
	var mu sync.Mutex
	turn := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for _, at := range slices.Sorted(maps.Keys(places)) {
		line := sourceLine(t, at)
		if why, is := exceptions[line]; is {
			if why == "" {
				t.Errorf("%s: no reason", line)
			}
			continue
		}
		if !places[at] {
			t.Errorf("%s: no scenario has anything of it: %s", at, line)
			continue
		}
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			cmd := exec.Command(os.Args[0], "-test.run", "^TestGoesOn$", "-test.failfast", "-test.timeout", "3m")
			cmd.Env = append(os.Environ(), "RDSD_LEAVE_OUT="+at)
			out, err := cmd.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			switch exit := (*exec.ExitError)(nil); {
			case err == nil:
				t.Errorf("%s: nobody notices that it is left out: %s", at, line)
			case !errors.As(err, &exit) || strings.Contains(string(out), "test timed out"):
				t.Errorf("%s: %v: %s", at, err, out[max(0, len(out)-2000):])
			}
		})
	}
	all.Wait()
}

// sourceLine is the line of code that writes a value.
func sourceLine(t *testing.T, at string) string {
	t.Helper()
	file, rest, _ := strings.Cut(at, ":")
	number, _, _ := strings.Cut(rest, "#")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	dir := map[string]string{"engine": ".", "conn": "../../conn", "rdmaop": "../../rdmaop", "shm": "../shm"}[filepath.Dir(file)]
	b, err := os.ReadFile(filepath.Join(dir, filepath.Base(file)))
	if err != nil {
		t.Fatal(err)
	}
	return file + ": " + strings.TrimSpace(strings.Split(string(b), "\n")[n-1])
}

// exceptions are the lines that write what no scenario needs to notice, and why.
var exceptions = map[string]string{}
