// Package e2e tests rdsd from outside, with real daemons and real client processes, and treats
// them badly in every way. Each test runs in a process of its own, so that a leak shows in the
// test that has it.
//
// E2E_RACE=1 builds the daemons with the race detector. E2E_LONG=1 runs longer.
package e2e

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/test/loopback"
)

// Environment variables of the processes of a test run.
const (
	envBin  = "E2E_BIN"  // directory of the programs
	envTest = "E2E_TEST" // the test that this process runs
	envNet  = "E2E_NET"  // its network, such as 127.64.1.0, which the parent has reserved
	envRole = "E2E_ROLE" // this process is a client of a test
	envArgs = "E2E_ARGS" // more arguments of every daemon: test/vmlab/ibv
)

// sndBuf is the send buffer limit of a new socket, and its receive buffer limit, bytes.
const sndBuf = 512 << 10

// patience is much longer than any step takes, even on a busy machine.
const patience = 2 * time.Minute

var long = os.Getenv("E2E_LONG") != ""

func TestMain(m *testing.M) {
	flag.Parse()

	if os.Getenv(envRole) != "" {
		os.Exit(runRole(os.Getenv(envRole)))
	}
	if os.Getenv(envBin) != "" {
		os.Exit(m.Run())
	}
	os.Exit(runAll(m))
}

// runAll builds the programs and runs the tests.
func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users run the programs, too
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv(envBin, dir)
	// The tests wait more than they compute.
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		f.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
	return m.Run()
}

func build(dir string) error {
	for _, b := range []struct {
		out, pkg string
		race     bool
		tags     string
	}{
		{"rdsd", "../../cmd/rdsd", os.Getenv("E2E_RACE") == "1", ""},
		{"rdsctl", "../../cmd/rdsctl", false, ""},
		{"rdsd-failpoints", "../../cmd/rdsd", false, "failpoints"},
	} {
		args := []string{"build", "-buildvcs=false", "-o", filepath.Join(dir, b.out), "-tags", b.tags}
		if b.race {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(args, b.pkg)...)
		switch {
		case b.race:
			cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		case b.tags != "": // containers have no libraries
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
	}
	return nil
}

func program(name string) string { return filepath.Join(os.Getenv(envBin), name) }

// isolated runs a test in a process of its own, with a network of its own. It checks that this
// process is left as it was.
func isolated(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	isolatedUnder(t, nil, run)
}

// isolatedUnder is isolated in a process that a command runs: the process's command line
// follows the command.
func isolatedUnder(t *testing.T, cmd []string, run func(t *testing.T)) {
	t.Helper()
	if inside(t, run) {
		return
	}
	t.Parallel()
	inProcess(t, cmd)
}

// isolatedAlone is isolated for a test beside which no other one of this package runs.
func isolatedAlone(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	if !inside(t, run) {
		inProcess(t, nil)
	}
}

// inside runs the test if this process is its own.
func inside(t *testing.T, run func(t *testing.T)) bool {
	t.Helper()
	if os.Getenv(envTest) != t.Name() {
		return false
	}
	adoptOrphans(t)
	noLeaks(t)
	run(t)
	return true
}

// inProcess runs a test in a process of its own that a command runs.
func inProcess(t *testing.T, cmd []string) {
	t.Helper()
	net, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	cmd = append(slices.Clone(cmd), os.Args[0], "-test.run="+only(t.Name()), "-test.v", "-test.timeout="+testTimeout().String())
	p := startProcess(t, []string{
		envTest + "=" + t.Name(),
		envNet + "=" + net.First().String(),
	}, cmd[0], cmd[1:]...)
	if !p.Wait(testTimeout() + patience) {
		p.Signal(syscall.SIGQUIT)
		p.Wait(patience) // its daemons may have its output open
		killOrphans(envNet + "=" + net.First().String())
		<-p.Ended()
	}
	killOrphans(envNet + "=" + net.First().String())
	if p.Code() != 0 {
		t.Errorf("%s\n%s", p.stdout(), p.log())
	} else if testing.Verbose() {
		t.Logf("%s", strings.TrimSpace(p.stdout()))
	}
}

// testTimeout returns the timeout of one test.
func testTimeout() time.Duration {
	if long {
		return 10 * time.Minute
	}
	return 2 * time.Minute
}

// only returns the pattern that matches one test or subtest.
func only(name string) string { return "^" + strings.ReplaceAll(name, "/", "$/^") + "$" }

// lastAddress is the last address of this test's network that address has returned.
var lastAddress atomic.Uint32

func newAddress(t *testing.T) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(os.Getenv(envNet))
	if err != nil {
		t.Fatalf("%s: %v", envNet, err)
	}
	return loopback.At(a, int(lastAddress.Add(1)))
}

// eventually polls until check is nil. It fails the test with the last error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still %v", what, err)
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
}
