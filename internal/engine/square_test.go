package engine

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// often is how often a statement may run in one of manyTests: 64 times for each of the
// 65,536 things that are there. A statement that runs for each pair of them does so 2^31
// times, and one that runs for each pair of 4,096 peers 2^23 times.
const often = 64 << 16

// manyTests fill a table of the engine, use it and empty it.
var manyTests = []string{"TestManyDestinations", "TestManySockets", "TestIdleSocketMemory", "TestManyWaitingDestinations"}

// TestNothingGrowsWithTheSquare: the work at the limits grows with what is there, and not
// with its square. It runs manyTests and the cases of TestTurnsAtLimits in a program that
// counts how often each statement ran. The count does not depend on the machine.
func TestNothingGrowsWithTheSquare(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	program := filepath.Join(t.TempDir(), "counting")
	build := exec.Command("go", "test", "-c", "-cover", "-covermode=count",
		"-coverpkg=./...,../lists,../chores,../quota,../../conn,../../conn/msg,../../conn/tcp,../../rdmaop,../../barrier", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	patterns := manyTests
	for _, c := range limitCases {
		patterns = append(patterns, "TestTurnsAtLimits$/^"+strings.ReplaceAll(c.name, " ", "_"))
	}
	for _, p := range patterns {
		counts := filepath.Join(t.TempDir(), "counts")
		run := exec.Command(program, "-test.run=^"+p+"$", "-test.v", "-test.coverprofile="+counts)
		out, err := run.CombinedOutput()
		if name, _, _ := strings.Cut(p, "$"); err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
			t.Errorf("%v: %v\n%s", run, err, out)
			continue
		}
		switch at, n := mostRun(t, counts); {
		case n > often:
			t.Fatalf("%s: the statement at %s ran %d times, want at most %d", p, at, n, often)
		case n < 4096:
			t.Errorf("%s: no statement ran more than %d times, so little was counted", p, n)
		default:
			t.Logf("%s: the statement at %s ran %d times", p, at, n)
		}
	}
}

// mostRun returns the statement that ran most often. A line of the profile has its place,
// the number of its statements and how often it ran.
func mostRun(t *testing.T, profile string) (at string, n int) {
	t.Helper()
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan() // the mode
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		k, err := strconv.Atoi(w[len(w)-1])
		if err != nil {
			t.Fatalf("%s: %v", profile, err)
		}
		if k > n {
			at, n = w[0], k
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return at, n
}
