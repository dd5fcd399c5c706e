// Package conformance proves, statement by statement, that rdsd behaves as users of the kernel's
// RDS rely on ("k"), or by a rule of its own ("r"). Each statement has a number, a text and a
// check. A check runs against real daemons through package afrds or package rds, or is a peer
// that speaks the wire format itself. `make conformance` prints the list.
//
//	go test ./test/conformance -run 'TestStatements/^E$/^82_' -v
package conformance

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// envLines names a file that gets a line for each statement. Its fields, separated by tabs, are
// number, k or r, verdict, how the statement is proven, text, and reason.
const envLines = "RDS_CONFORMANCE"

// For a run in emulated hosts (test/vmlab/ibv): the folder of rdsd, an IPv4 network whose
// addresses are there, and more arguments for every daemon. Such a run has only the statements
// that sockets of two daemons prove.
const (
	envBin  = "RDS_CONFORMANCE_BIN"
	envNet  = "RDS_CONFORMANCE_NET" // such as 10.9.1.0
	envArgs = "RDS_CONFORMANCE_ARGS"
)

// patience is far above what anything here takes, on a loaded machine too.
const patience = 60 * time.Second // above the 30 s that statement 96 takes

// bin is the folder of the programs.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if bin = os.Getenv(envBin); bin != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "rdsd"), "../../cmd/rdsd")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n%s", cmd, err, out)
		return 1
	}
	// The groups wait more than they compute.
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		f.Value.Set("16")
	}
	return m.Run()
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
		time.Sleep(time.Millisecond) // between two looks
	}
}
