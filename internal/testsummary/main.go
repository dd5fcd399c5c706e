// Command testsummary reads the output of one or more `go test -json` runs on
// stdin, prints a line per package and the output of what failed, and ends
// with the list of skips and "N passed, N failed, N skipped".
//
// Lines that are not JSON are passed through; four kinds mean something:
// "== NAME" starts a stage, "fail: WHAT" is a failure outside a test,
// "skip: WHY" a stage that could not run, "exit: WHAT" a command that returned
// non-zero: a failure if the stage reported none.
//
// With -runs every stage is a run of the same tests: each skip is listed once, and
// of each failure in how many runs it was.
//
// The status is 1 if something failed, if nothing ran, or if RDSD_TEST_FULL=1
// is set and a skip is not in the file of expected ones.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	expected := flag.String("expected", "", "file of skips that are right by construction: lines of STAGE PACKAGE/TEST")
	runs := flag.Bool("runs", false, "every stage is a run of the same tests: count in how many each failed")
	flag.Parse()
	var rules []rule
	if *expected != "" {
		text, err := os.ReadFile(*expected)
		if err == nil {
			rules, err = parseRules(string(text))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "testsummary:", err)
			os.Exit(2)
		}
	}
	s := newSummary(os.Stdout, rules, os.Getenv("RDSD_TEST_FULL") == "1")
	s.runs = *runs
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(2)
	}
	if !s.finish() {
		os.Exit(1)
	}
}
