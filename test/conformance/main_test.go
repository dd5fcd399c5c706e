// Package conformance proves, statement by statement, that rdsd behaves as
// users of the kernel's RDS rely on ("k"), and better where rdsd promises more
// ("r"). Each statement has a number, a text and a check that runs against real
// daemons, through package afrds, package rds, or as a peer that speaks the
// wire itself. `make conformance` prints the list.
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

// envLines names a file that gets a line for each statement: number, k or r,
// verdict, how it is proven, text, reason; tabs between.
const envLines = "RDS_CONFORMANCE"

// envTags are build tags of the daemons: "mutant" builds those that RDSD_MUTANT
// breaks, which checks must notice.
const envTags = "RDS_CONFORMANCE_TAGS"

// For a run elsewhere (test/vmlab/ibv): the folder of rdsd, an IPv4 network whose
// addresses are there, and more arguments of every daemon. What is not proven by
// sockets of two daemons is left out then.
const (
	envBin  = "RDS_CONFORMANCE_BIN"
	envNet  = "RDS_CONFORMANCE_NET" // as in 10.9.1.0
	envArgs = "RDS_CONFORMANCE_ARGS"
)

// patience is far above what anything here takes, on a loaded machine too.
const patience = 60 * time.Second // above the 30 s that statement 96 takes

// bin is the directory of the programs.
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
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", os.Getenv(envTags), "-o", filepath.Join(dir, "rdsd"), "../../cmd/rdsd")
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
		time.Sleep(time.Millisecond) // between two looks, not for something to happen
	}
}
