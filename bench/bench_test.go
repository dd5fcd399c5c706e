package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The test's program is also the workers it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		os.Exit(workerMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// Every case once, briefly, with real daemons: all come to an end, measure
// something, and leave neither file nor process.
func TestAllCases(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t.Setenv("TMPDIR", t.TempDir())
	rdsd := filepath.Join(t.TempDir(), "rdsd")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", rdsd, "../cmd/rdsd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out, log bytes.Buffer
	args := []string{"-n", "1", "-d", "20ms", "-footprint", "2", "-rdsd", rdsd, "-o", "json"}
	if err := benchMain(context.Background(), args, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	var rep report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Cases) != len(cases) {
		t.Errorf("%d cases, want %d", len(rep.Cases), len(cases))
	}
	for _, c := range rep.Cases {
		if c.Main.Median <= 0 || c.CPU.Median <= 0 {
			t.Errorf("%s: %v, CPU %v", c.Name, c.Main, c.CPU)
		}
		if (c.Peer != "") != (c.Ratio != nil) {
			t.Errorf("%s: peer %q and ratio %v", c.Name, c.Peer, c.Ratio)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestArguments(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"-n 0", "-n 0 is not from"},
		{"-d 1ms", "-d 1ms is not from"},
		{"-footprint 0", "-footprint 0 is not from"},
		{"-o xml", "neither table nor json"},
		{"-run (", "-run: "},
		{"-run nothing", "no case matches"},
		{"now", `"now" is not a flag`},
		{"-rdsd /nonexistent", "make build"},
	} {
		err := benchMain(context.Background(), strings.Fields(tc.args), &bytes.Buffer{}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q in it", tc.args, err, tc.want)
		}
	}
}

// A worker that fails is named with what it said, at once.
func TestWorkerFails(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o, err := parse([]string{"-d", "10ms"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{options: o, dir: t.TempDir()}
	start := time.Now()
	_, err = b.once(context.Background(), testCase{name: "x", server: "no-such", client: "tcp-ping", size: 1})
	if err == nil || !strings.Contains(err.Error(), `no worker "no-such"`) {
		t.Errorf("%v", err)
	}
	if el := time.Since(start); el > startup/2 {
		t.Errorf("took %v", el)
	}
}

func TestFigure(t *testing.T) {
	for _, tc := range []struct {
		runs             []float64
		median, min, max float64
	}{
		{[]float64{3}, 3, 3, 3},
		{[]float64{3, 1}, 2, 1, 3},
		{[]float64{5, 1, 2}, 2, 1, 5},
	} {
		f := figure{Runs: tc.runs}
		if f.summarize(); f.Median != tc.median || f.Min != tc.min || f.Max != tc.max {
			t.Errorf("%v: %+v", tc.runs, f)
		}
	}
}

// The clock of another process counts what that process uses.
func TestCPUTime(t *testing.T) {
	before := cpuTime([]int{os.Getpid()})
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	if used := cpuTime([]int{os.Getpid()}) - before; used <= 0 || used > time.Minute {
		t.Errorf("%v of processor time", used)
	}
	if sum := cpuTime([]int{os.Getpid(), os.Getpid()}); sum < 2*before {
		t.Errorf("two processes %v, one %v", sum, before)
	}
}
