package main

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/mutant"
)

// TestFive runs the short form: five variants of different layers.
func TestFive(t *testing.T) {
	if testing.Short() {
		t.Skip("builds test binaries")
	}
	todo, err := choose(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(todo) != 5 {
		t.Errorf("%d checks in the short form", len(todo))
	}
	var out strings.Builder
	if err := run(&out, todo); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestChoose(t *testing.T) {
	all, err := choose(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	checked := map[mutant.Name]bool{}
	for _, c := range all {
		checked[c.variant] = true
	}
	for _, name := range mutant.Names() {
		if !checked[name] {
			t.Errorf("no check for the variant %s", name)
		}
	}
	if one, err := choose([]string{string(mutant.NoGate)}, false); err != nil || len(one) != 1 {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := choose([]string{"nothing"}, false); err == nil {
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
