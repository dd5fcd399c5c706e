package main

import (
	"os"
	"strings"
	"testing"
)

const (
	passLine = `{"Action":"pass","Package":"m/a","Test":"TestX","Elapsed":0.1}` + "\n" + `{"Action":"pass","Package":"m/a","Elapsed":0.2}` + "\n"
	skipped  = `{"Action":"output","Package":"m/a","Test":"TestS","Output":"    a_test.go:7: needs root\n"}` + "\n" +
		`{"Action":"skip","Package":"m/a","Test":"TestS"}` + "\n"
)

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    string
		rules string
		full  bool
		ok    bool
		last  string
		says  []string
	}{
		{name: "all passed", in: "== unit\n" + passLine, ok: true, last: "1 passed, 0 failed, 0 skipped", says: []string{"ok\tm/a"}},
		{name: "nothing ran is a failure", in: "== unit\n", last: "0 passed, 0 failed, 0 skipped", says: []string{"no test ran"}},
		{name: "a skip is listed with its reason", in: "== unit\n" + skipped + passLine, ok: true,
			last: "1 passed, 0 failed, 1 skipped", says: []string{"skip\tunit: m/a/TestS: needs root\n"}},
		{name: "a skip fails a full run", in: "== unit\n" + skipped + passLine, full: true,
			last: "1 passed, 0 failed, 1 skipped", says: []string{"1 skipped that should have run"}},
		{name: "an expected skip does not", in: "== race\n" + skipped + passLine, rules: "race m/*/TestS # why", full: true, ok: true,
			last: "1 passed, 0 failed, 1 skipped", says: []string{"(expected)"}},
		{name: "expected in another stage only", in: "== unit\n" + skipped + passLine, rules: "race m/a/TestS", full: true,
			last: "1 passed, 0 failed, 1 skipped"},
		{name: "a failed test shows its output", in: "== unit\n" +
			`{"Action":"output","Package":"m/a","Test":"TestF","Output":"boom\n"}` + "\n" +
			`{"Action":"fail","Package":"m/a","Test":"TestF"}` + "\n" + `{"Action":"fail","Package":"m/a"}` + "\nexit: go test\n",
			last: "0 passed, 1 failed, 0 skipped", says: []string{"boom\n", "fail\tunit: m/a/TestF"}},
		{name: "a package that does not build", in: "== unit\n" +
			`{"ImportPath":"m/b","Action":"build-output","Output":"b.go:1: no\n"}` + "\n" +
			`{"Action":"fail","Package":"m/b","FailedBuild":"m/b"}` + "\n",
			last: "0 passed, 1 failed, 0 skipped", says: []string{"b.go:1: no", "m/b does not build"}},
		{name: "a panic shows the unfinished test", in: "== unit\n" +
			`{"Action":"output","Package":"m/a","Test":"TestP","Output":"half way\n"}` + "\n" +
			`{"Action":"output","Package":"m/a","Output":"panic: x\n"}` + "\n" + `{"Action":"fail","Package":"m/a"}` + "\n",
			last: "0 passed, 1 failed, 0 skipped", says: []string{"half way", "panic: x"}},
		{name: "a silent error is a failure", in: "== unit\n" + passLine + "exit: go test\n",
			last: "1 passed, 1 failed, 0 skipped", says: []string{"reported no failed test"}},
		{name: "a failure outside tests", in: "== static\nfail: gofmt -l: x.go\n" + passLine,
			last: "1 passed, 1 failed, 0 skipped", says: []string{"fail\tstatic: gofmt -l: x.go"}},
		{name: "a stage that cannot run", in: "== race\nskip: no C compiler\n== unit\n" + passLine, full: true,
			last: "1 passed, 0 failed, 1 skipped", says: []string{"skip\trace: race: no C compiler"}},
		{name: "other lines pass", in: "hello\n" + passLine, ok: true, last: "1 passed, 0 failed, 0 skipped", says: []string{"hello\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules, err := parseRules(c.rules)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			s := newSummary(&out, rules, c.full)
			if err := s.read(strings.NewReader(c.in)); err != nil {
				t.Fatal(err)
			}
			if ok := s.finish(); ok != c.ok {
				t.Errorf("ok = %v, want %v\n%s", ok, c.ok, out.String())
			}
			text := strings.TrimRight(out.String(), "\n")
			if last := text[strings.LastIndexByte(text, '\n')+1:]; last != c.last {
				t.Errorf("last line %q, want %q", last, c.last)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, out.String())
				}
			}
		})
	}
}

// With -runs a test that failed in some runs is one line, the most frequent first.
func TestRuns(t *testing.T) {
	fail := func(name string) string { return `{"Action":"fail","Package":"m/a","Test":"` + name + `"}` + "\n" }
	in := "== run 1\n" + fail("TestA") + skipped + "== run 2\n" + fail("TestB") + fail("TestA") + skipped + "== run 3\n" + passLine
	var out strings.Builder
	s := newSummary(&out, nil, false)
	s.runs = true
	if err := s.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if s.finish() {
		t.Error("all is well")
	}
	const want = "== skipped\nskip\trun 1: m/a/TestS: needs root\n" +
		"== failed\nfail\t2 of 3 runs: m/a/TestA\nfail\t1 of 3 runs: m/a/TestB\n1 passed, 3 failed, 1 skipped\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("%s\nlacks\n%s", out.String(), want)
	}
}

func TestParseRulesNamesTheLine(t *testing.T) {
	if _, err := parseRules("# ok\nunit a b\n"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("err = %v, want one that names line 2", err)
	}
}

// TestParseRulesTwice: what a line names no other line names, too.
func TestParseRulesTwice(t *testing.T) {
	for _, text := range []string{"unit a/T\nrace b/T\nunit a/T # why\n", "unit a/T\n\n* a/*\n", "* a/T*\n\nunit a/T\n"} {
		if _, err := parseRules(text); err == nil || !strings.Contains(err.Error(), "line 3: ") || !strings.Contains(err.Error(), "line 1 ") {
			t.Errorf("%q: %v, want an error that names lines 3 and 1", text, err)
		}
	}
	text, err := os.ReadFile("../../../scripts/expected-skips.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseRules(string(text)); err != nil {
		t.Error(err)
	}
}
