//go:build leaveout

package leaveout

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/internal/handover"
)

// Check is a set of tests that have to fail, whatever value is left out of a state.
type Check struct {
	Run    func(*testing.T) // runs the tests here, to find out what they write
	Tests  string           // pattern of the tests
	Of     *regexp.Regexp   // the places to look at, as in "engine/handoverslot.go:45#2"
	Except map[string]string
}

// Each checks that c's tests fail without any one value. A value that was never other than 0 is
// an error, too. Except names what is not to be looked at and says why: a line of code, as in
// "engine/handoverslot.go: w.U32(sl.idx)", or one value of a line, as in "... #2" behind it.
func Each(t *testing.T, c Check) {
	t.Helper()
	if os.Getenv("RDSD_LEAVE_OUT") != "" {
		t.Skip("is one of those that leave out something")
	}
	c.Run(t)
	if t.Failed() {
		return
	}
	places := handover.Places()
	var mu sync.Mutex
	var all sync.WaitGroup
	turn := make(chan struct{}, runtime.GOMAXPROCS(0))
	excepted := map[string]bool{}
	for _, at := range slices.Sorted(maps.Keys(places)) {
		if !c.Of.MatchString(at) {
			continue
		}
		line := source(t, at)
		_, k, _ := strings.Cut(at, "#")
		one := line + " #" + k
		switch {
		case c.Except[line] != "":
			excepted[line] = true
		case c.Except[one] != "":
			excepted[one] = true
		case !places[at]:
			t.Errorf("%s: the tests have nothing of it: %s", at, line)
		default:
			all.Go(func() {
				turn <- struct{}{}
				failure := c.without(at)
				<-turn
				mu.Lock()
				defer mu.Unlock()
				if failure != "" {
					t.Errorf("%s: %s: %s", at, line, failure)
				}
			})
		}
	}
	all.Wait()
	for line := range c.Except {
		if !excepted[line] {
			t.Errorf("an exception for what nobody writes: %s", line)
		}
	}
}

// without runs the tests without a value. It returns what is wrong, if they do not fail.
func (c *Check) without(at string) string {
	cmd := exec.Command(os.Args[0], "-test.run", c.Tests, "-test.failfast", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), "RDSD_LEAVE_OUT="+at)
	out, err := cmd.CombinedOutput()
	switch exit := (*exec.ExitError)(nil); {
	case err == nil:
		return "nobody notices that it is left out"
	case !errors.As(err, &exit):
		return err.Error()
	case strings.Contains(string(out), "test timed out"):
		return "the tests hang"
	}
	return ""
}

// source is the file and the line of code of a place.
func source(t *testing.T, at string) string {
	t.Helper()
	file, rest, _ := strings.Cut(at, ":")
	number, _, _ := strings.Cut(rest, "#")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"..", "../..", "../../internal"} { // of packages here and below internal
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		if lines := strings.Split(string(b), "\n"); n <= len(lines) {
			return file + ": " + strings.TrimSpace(lines[n-1])
		}
	}
	t.Fatalf("%s is not found", at)
	return ""
}
