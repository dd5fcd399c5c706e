package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// skip is a test or stage that did not run.
type skip struct {
	stage, name, reason string
	expected            bool
}

// failure is a test, or something outside a test, that failed.
type failure struct{ stage, what string }

// summary gathers the results of all stages.
type summary struct {
	w     io.Writer
	rules []rule
	full  bool // an unexpected skip is a failure
	runs  bool // every stage is a run of the same tests

	stage       string
	stages      int
	stageFailed int // failures reported in this stage
	stageRan    int // tests ended in this stage
	passed      int
	failed      int
	failures    []failure
	skips       []skip
	output      map[string][]string // by package + "\n" + test, until its end is known
	failedTests map[string]bool     // packages with a failed test
}

func newSummary(w io.Writer, rules []rule, full bool) *summary {
	return &summary{w: w, rules: rules, full: full,
		output: map[string][]string{}, failedTests: map[string]bool{}}
}

// read takes lines until the end of r.
func (s *summary) read(r io.Reader) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		line := sc.Text()
		var e event
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
			s.event(e)
			continue
		}
		s.line(line)
	}
	return sc.Err()
}

// line handles what is not JSON.
func (s *summary) line(line string) {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "==":
		s.stage, s.stageFailed, s.stageRan = rest, 0, 0
		s.stages++
	case "fail:":
		s.fail(rest)
	case "skip:":
		s.addSkip(s.stage, rest)
	case "exit:":
		if s.stageFailed == 0 {
			s.fail(rest + " ended with an error and reported no failed test")
		}
	}
	fmt.Fprintln(s.w, line)
}

func (s *summary) fail(what string) {
	s.failed++
	s.stageFailed++
	s.failures = append(s.failures, failure{s.stage, what})
}

func (s *summary) addSkip(name, reason string) {
	k := skip{stage: s.stage, name: name, reason: reason}
	for _, r := range s.rules {
		k.expected = k.expected || r.match(k.stage, k.name)
	}
	if s.runs && slices.ContainsFunc(s.skips, func(o skip) bool { return o.name == name }) {
		return
	}
	s.skips = append(s.skips, k)
}

func (s *summary) event(e event) {
	key := e.Package + "\n" + e.Test
	switch e.Action {
	case "output":
		s.output[key] = append(s.output[key], e.Output)
		return
	case "build-output":
		fmt.Fprint(s.w, e.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	if e.Test == "" {
		s.packageEnd(e)
		return
	}
	s.stageRan++
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.addSkip(e.Package+"/"+e.Test, reason(s.output[key]))
	case "fail":
		s.failedTests[e.Package] = true
		s.fail(e.Package + "/" + e.Test)
		s.print(key)
	}
	delete(s.output, key)
}

// packageEnd prints the package's line. A package that failed without a failed test (build,
// panic, time-out, TestMain) is itself a failure, and the output of its unfinished tests is
// shown.
func (s *summary) packageEnd(e event) {
	own := e.Package + "\n"
	switch {
	case e.Action == "fail" && !s.failedTests[e.Package]:
		what := e.Package
		if e.FailedBuild != "" {
			what += " does not build"
		}
		s.fail(what)
		for key := range s.output {
			if strings.HasPrefix(key, own) && key != own {
				s.print(key)
			}
		}
		s.print(own)
	case e.Action == "fail":
		fmt.Fprintf(s.w, "FAIL\t%s\t%.1fs\n", e.Package, e.Elapsed)
	case e.Action == "pass":
		fmt.Fprintf(s.w, "ok\t%s\t%.1fs\n", e.Package, e.Elapsed)
	}
	for key := range s.output {
		if strings.HasPrefix(key, own) {
			delete(s.output, key)
		}
	}
	delete(s.failedTests, e.Package)
}

// printFailures lists each failure, and with -runs in how many runs it was.
func (s *summary) printFailures() {
	if len(s.failures) == 0 {
		return
	}
	fmt.Fprintln(s.w, "== failed")
	if !s.runs {
		for _, f := range s.failures {
			fmt.Fprintf(s.w, "fail\t%s: %s\n", f.stage, f.what)
		}
		return
	}
	in := map[string]map[string]bool{} // the runs of each
	for _, f := range s.failures {
		if in[f.what] == nil {
			in[f.what] = map[string]bool{}
		}
		in[f.what][f.stage] = true
	}
	often := slices.Collect(maps.Keys(in))
	slices.SortFunc(often, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(in[b]), len(in[a])), strings.Compare(a, b))
	})
	for _, what := range often {
		fmt.Fprintf(s.w, "fail\t%d of %d runs: %s\n", len(in[what]), s.stages, what)
	}
}

func (s *summary) print(key string) {
	for _, o := range s.output[key] {
		fmt.Fprint(s.w, o)
	}
}

// skipLine matches the text given to Skip, as the testing package prints it.
var skipLine = regexp.MustCompile(`^\s*\S+\.go:\d+: (.*)$`)

// reason finds the text given to Skip in a test's output.
func reason(output []string) string {
	found := "no reason given"
	for _, o := range output {
		if m := skipLine.FindStringSubmatch(strings.TrimRight(o, "\n")); m != nil {
			found = m[1]
		}
	}
	return found
}

// finish prints the end of the report and returns whether all is well.
func (s *summary) finish() bool {
	unexpected := 0
	if len(s.skips) > 0 {
		fmt.Fprintln(s.w, "== skipped")
	}
	for _, k := range s.skips {
		note := ""
		if k.expected {
			note = " (expected)"
		} else {
			unexpected++
		}
		fmt.Fprintf(s.w, "skip\t%s: %s: %s%s\n", k.stage, k.name, k.reason, note)
	}
	s.printFailures()
	ok := s.failed == 0
	if s.full && unexpected > 0 {
		fmt.Fprintf(s.w, "RDSD_TEST_FULL=1: %d skipped that should have run\n", unexpected)
		ok = false
	}
	if s.passed+s.failed == 0 {
		fmt.Fprintln(s.w, "no test ran")
		ok = false
	}
	fmt.Fprintf(s.w, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, len(s.skips))
	return ok
}
