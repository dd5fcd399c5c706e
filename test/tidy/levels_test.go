package tidy

import (
	"fmt"
	"go/ast"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// part is what one level runs of a package in a stage.
type part struct {
	stage, pkg string
	how        string   // "" all tests, "-skip" all but some, "-run" some
	tests      []string // those some: TestName or TestName/sub
}

// parsePlan reads what scripts/test.sh -n prints.
func parsePlan(text string) (plan []part) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		p := part{stage: f[0], pkg: f[1]}
		if len(f) > 3 {
			p.how = f[2]
			p.tests = strings.Split(strings.NewReplacer("^", "", "$", "").Replace(f[3]), "|")
		}
		plan = append(plan, p)
	}
	return plan
}

// checkPlans reports packages and tests that the levels together do not run once in each stage.
// tests has the names of each package's tests.
func checkPlans(core, rest []part, tests map[string][]string) (found []string) {
	type place struct{ stage, pkg string }
	parts := map[place][]part{}
	for _, p := range slices.Concat(core, rest) {
		parts[place{p.stage, p.pkg}] = append(parts[place{p.stage, p.pkg}], p)
	}
	for pkg := range tests {
		if parts[place{"static", pkg}] == nil && parts[place{"unit", pkg}] == nil && parts[place{"e2e", pkg}] == nil {
			found = append(found, fmt.Sprintf("levels: neither make test nor make test-all runs %s", pkg))
		}
	}
	for at, p := range parts {
		whole := len(p) == 1 && p[0].how == ""
		divided := len(p) == 2 && p[0].how != "" && p[1].how != "" && p[0].how != p[1].how && slices.Equal(p[0].tests, p[1].tests)
		if !whole && !divided {
			found = append(found, fmt.Sprintf("levels: %s %s: core and rest together do not run each test once: %v", at.stage, at.pkg, p))
		}
		for _, name := range p[0].tests {
			beside := maps.Clone(tests) // the packages of the stage
			maps.DeleteFunc(beside, func(pkg string, _ []string) bool { return parts[place{at.stage, pkg}] == nil })
			found = append(found, checkDivided(at.stage, at.pkg, name, beside)...)
		}
	}
	return found
}

// checkDivided reports a divided test that does not exist, or that has a namesake. go test takes
// one -skip for all packages of a stage, so the namesake would go with it.
func checkDivided(stage, pkg, name string, tests map[string][]string) (found []string) {
	name, _, _ = strings.Cut(name, "/")
	if !slices.Contains(tests[pkg], name) {
		found = append(found, fmt.Sprintf("scripts/levels.txt: %s %s: there is no %s", stage, pkg, name))
	}
	for other := range tests {
		if other != pkg && slices.Contains(tests[other], name) {
			found = append(found, fmt.Sprintf("scripts/levels.txt: %s %s: %s has a %s, too: rename one of them", stage, pkg, other, name))
		}
	}
	return found
}

// checkRules reports lines of scripts/levels.txt that do nothing.
func checkRules(text string, plans map[string][]part) (found []string) {
	for line := range strings.Lines(text) {
		rule, why, _ := strings.Cut(strings.TrimSpace(line), "#")
		f := strings.Fields(rule)
		if len(f) == 0 {
			continue
		}
		if len(f) < 3 || len(f) > 4 || plans[f[0]] == nil || strings.TrimSpace(why) == "" {
			found = append(found, fmt.Sprintf("scripts/levels.txt: %q: want LEVEL STAGE PACKAGE [TEST,TEST] # why", line))
			continue
		}
		pkg := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(f[2]), `\*`, ".*") + "$")
		used := slices.ContainsFunc(plans[f[0]], func(p part) bool {
			return p.stage == f[1] && pkg.MatchString(p.pkg) && (len(f) == 3 || p.how == "-run" && subset(strings.Split(f[3], ","), p.tests))
		})
		if !used {
			found = append(found, fmt.Sprintf("scripts/levels.txt: %q is not needed: level %s runs no more by it", strings.TrimSpace(rule), f[0]))
		}
	}
	return found
}

func subset(some, all []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// TestLevels: make test and make test-all together run every stage, every package, and every
// test of it once.
func TestLevels(t *testing.T) {
	makefile, script := readDoc(t, "Makefile"), readDoc(t, "scripts/test.sh")
	plans := map[string][]part{}
	var stages []string
	for _, level := range []string{"core", "rest"} {
		m := regexp.MustCompile(`(?m)^\t@scripts/test\.sh ` + level + ` (.+)$`).FindStringSubmatch(makefile)
		if m == nil {
			t.Fatalf("the Makefile does not run scripts/test.sh %s", level)
		}
		args := strings.Fields(m[1])
		stages = append(stages, args...)
		cmd := exec.Command("scripts/test.sh", append([]string{"-n", level}, args...)...)
		cmd.Dir = root(t)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		plans[level] = parsePlan(string(out))
	}
	for _, m := range regexp.MustCompile(`(?m)^stage_(\w+)\(\)`).FindAllStringSubmatch(script, -1) {
		if !slices.Contains(stages, m[1]) {
			t.Errorf("neither make test nor make test-all runs the stage %s", m[1])
		}
	}
	tests := map[string][]string{}
	for dir, files := range packages(t) {
		for _, f := range files {
			if !f.test() || slices.Contains(unplanned, dir) {
				continue
			}
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
					tests[dir] = append(tests[dir], fn.Name.Name)
				}
			}
		}
	}
	report(t, slices.Concat(checkPlans(plans["core"], plans["rest"], tests), checkRules(readDoc(t, "scripts/levels.txt"), plans)))
}

// TestPlans: checkPlans and checkRules find what they are for.
func TestPlans(t *testing.T) {
	tests := map[string][]string{"a": {"TestX", "TestY"}, "b": {"TestZ"}}
	for _, c := range []struct {
		name, core, rest, rules string
		want                    string // part of the only finding, "" for none
	}{
		{"all", "unit a\nunit b\n", "race a\nrace b\n", "core unit * # why\nrest race * # why", ""},
		{"divided", "unit a -skip ^TestX$\nunit b\n", "unit a -run ^TestX$\n", "rest unit a TestX # why", ""},
		{"two divided", "unit a -skip ^TestX$|^TestY$\nunit b\n", "unit a -run ^TestX$|^TestY$\n", "rest unit a TestX,TestY # why", ""},
		{"a subtest", "unit a -skip ^TestX$/^s$\nunit b\n", "unit a -run ^TestX$/^s$\n", "rest unit a TestX/s # why", ""},
		{"a package is missing", "unit a\n", "", "", "runs b"},
		{"race is not enough", "unit a\n", "race b\n", "", "runs b"},
		{"twice", "unit a\nunit b\n", "unit b\n", "", "unit b"},
		{"half", "unit a -skip ^TestX$\nunit b\n", "", "", "unit a"},
		{"unlike halves", "unit a -skip ^TestX$\nunit b\n", "unit a -run ^TestY$\n", "", "unit a"},
		{"no such test", "unit a -skip ^TestN$\nunit b\n", "unit a -run ^TestN$\n", "", "no TestN"},
		{"a rule for nothing", "unit a\nunit b\n", "", "core unit c # why", "not needed"},
		{"a rule for the same level", "unit a -skip ^TestX$\nunit b\n", "unit a -run ^TestX$\n", "core unit a TestX # why", "not needed"},
		{"a rule without a reason", "unit a\nunit b\n", "", "core unit a", "# why"},
		{"no such level", "unit a\nunit b\n", "", "more unit a # why", "# why"},
	} {
		core, rest := parsePlan(c.core), parsePlan(c.rest)
		found := append(checkPlans(core, rest, tests), checkRules(c.rules, map[string][]part{"core": append(core, part{}), "rest": append(rest, part{})})...)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)) {
			t.Errorf("%s: found %q, want %q", c.name, found, c.want)
		}
	}
	tests["b"] = append(tests["b"], "TestX")
	if found := checkDivided("unit", "a", "TestX", tests); len(found) != 1 {
		t.Errorf("a namesake: found %q", found)
	}
}
