package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// TestFive runs the short form: five variants of different layers.
func TestFive(t *testing.T) {
	if testing.Short() {
		t.Skip("builds test binaries")
	}
	var out strings.Builder
	if err := run(&out, five); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestApplies: each variant's lines are in the product once, and the changed file, if it is Go, can be parsed.
// TestFive and the static checks compile it.
func TestApplies(t *testing.T) {
	all, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 200 {
		t.Errorf("%d variants", len(all))
	}
	of := map[string][]variant{}
	for _, v := range all {
		of[v.file] = append(of[v.file], v)
	}
	for file, vs := range of {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := instrument(file, string(text), vs); err != nil {
			t.Error(err)
			continue
		}
		for i, v := range vs {
			broken, err := instrument(file, string(text), vs[i:i+1])
			if err == nil && !isC(file) {
				_, err = parser.ParseFile(token.NewFileSet(), "", broken, parser.SkipObjectResolution)
			}
			if err != nil {
				t.Errorf("variant %s: %v", v.name, err)
			}
		}
	}
}

const (
	aHead = "a-name: what it breaks\na/b.go a.TestB/c internal/d.TestE\n"
	aFile = "package a\n\nfunc b() {\n\tif c() {\n\n\t\td()\n\t}\n\tif c() {\n\t\te()\n\t}\n}\n"
)

func TestInstrument(t *testing.T) {
	vs, err := parse("x", "# More\n"+aHead+"-if c() {\n+if c() && !BROKEN {\n   d()\n+  f()\n\nother: also\na/b.go a.TestF\n e()\n+if BROKEN {\n+  e()\n+}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := vs[0].checks; len(got) != 2 || got[0] != (check{"a-name", "a", "TestB/c"}) || got[1] != (check{"a-name", "internal/d", "TestE"}) {
		t.Errorf("checks %v", got)
	}
	const want = `package a; import "github.com/rdsd/rdsd/test/mutant"

func b() {
//line a/b.go:5

//line x:5
if c() && !mutant.On("a-name") {
//line a/b.go:6
		d()
//line x:7
  f()
//line a/b.go:7
	}
	if c() {
		e()
//line x:12
if mutant.On("other") {
//line x:13
  e()
//line x:14
}
//line a/b.go:10
	}
}
`
	if got, err := instrument("a/b.go", aFile, vs); err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestInstrumentC: a file in C has what its compiler takes.
func TestInstrumentC(t *testing.T) {
	vs, err := parse("x", "a-name: what it breaks\na/b.c a.TestB\n-if (c())\n+if (c() && !BROKEN)\n")
	if err != nil {
		t.Fatal(err)
	}
	const want = "{\n#line 4 \"x\"\nif (c() && !mutant_on(\"a-name\"))\n#line 3 \"a/b.c\"\n\t\td();\n}\n"
	if got, err := instrument("a/b.c", "{\n\tif (c())\n\t\td();\n}\n", vs); err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestInstrumentErrors(t *testing.T) {
	for change, want := range map[string]string{
		"+BROKEN\n":                  "at 0 places",
		" g()\n+BROKEN\n":            "at 0 places",
		"-if c() {\n+if BROKEN {\n":  "at 2 places",
		"-d()\n":                     "BROKEN is there 0 times",
		"-d()\n+g(BROKEN, BROKEN)\n": "BROKEN is there 2 times",
		"-d()\n+g(BROKEN)\nother: also\na/b.go a.TestF\n-d()\n+h(BROKEN)\n": `another variant changes the line "d()"`,
	} {
		vs, err := parse("x", aHead+change)
		if err == nil {
			_, err = instrument("a/b.go", aFile, vs)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "of a/b.go") {
			t.Errorf("%q: %v, want %q", change, err, want)
		}
	}
	for text, want := range map[string]string{
		"-d()\n":                 `x:1: "-d()"`,
		aHead + "b.go a.TestB\n": "x:3",
		aHead + "b: c\n":         "x:3",
		"a-name: b\n-d()\n":      "x:2",
		"a-name: b\nb.go\n":      "x:2",
		"A: b\n":                 "x:1",
	} {
		if _, err := parse("x", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestChoose(t *testing.T) {
	all := []variant{{name: "a", checks: []check{{"a", "p", "TestA"}, {"a", "q", "TestB"}}}, {name: "b", checks: []check{{"b", "p", "TestA"}}}}
	for names, want := range map[string]int{"": 3, "a": 2, "a b": 3, "b": 1} {
		if got, err := choose(all, strings.Fields(names)); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", names, got, err)
		}
	}
	if _, err := choose(all, []string{"c"}); err == nil {
		t.Error("no error for an unknown variant")
	}
}

// TestFailed: only a failure of the named test counts.
func TestFailed(t *testing.T) {
	c := check{test: "TestWorld/breaks"}
	for out, want := range map[string]bool{
		"--- FAIL: TestWorld (0.00s)":                              true,
		"--- FAIL: TestOther (0.00s)":                              false,
		"panic: something":                                         false,
		"--- FAIL: TestWorld (9s)\npanic: test timed out after 9s": false,
	} {
		if c.failed([]byte(out)) != want {
			t.Errorf("%q: %v", out, !want)
		}
	}
	if got := pattern(c.test); got != "^TestWorld$/^breaks$" {
		t.Errorf("pattern %q", got)
	}
}
