// Command testsummary reads the output of one or more `go test -json` runs on stdin. It
// prints a line for each package and the output of each failure. At the end it prints the
// list of skips and "N passed, N failed, N skipped".
//
// Lines that are not JSON are passed through. Four kinds of them have a meaning: "== NAME"
// starts a stage, "fail: WHAT" is a failure outside a test, "skip: WHY" is a stage that
// could not run, and "exit: WHAT" is a command that returned non-zero, which is a failure
// if the stage reported none.
//
// With -runs every stage is a run of the same tests. Each skip is then listed once, and
// each failure with the number of runs it was in.
//
// The status is 1 if something failed, if nothing ran, or if RDSD_TEST_FULL=1 is set and a
// skip is not in the file of expected skips.
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
