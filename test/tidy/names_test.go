package tidy

import (
	"cmp"
	"go/ast"
	"maps"
	"path"
	"slices"
	"testing"
)

// manyNames lists files in which one name is the receiver of several types, or a type has another one than
// elsewhere.
var manyNames = map[string]string{
	"internal/ipc/codec.go":    "a message is m, whichever it is",
	"internal/ipc/messages.go": "a message is m, whichever it is",

	// The names came before the rule: no other file may join these.
	"cmd/rdsctl/options.go":           old,
	"examples/rping/link.go":          old,
	"examples/rping/server.go":        old,
	"internal/ctl/rows.go":            old,
	"internal/engine/bytcp.go":        old,
	"internal/engine/listed.go":       old,
	"internal/engine/look.go":         old,
	"internal/engine/loop.go":         old,
	"internal/engine/meant.go":        old,
	"internal/engine/simcheck.go":     old,
	"internal/engine/throttle.go":     old,
	"internal/engine/took.go":         old,
	"internal/metrics/crowd_test.go":  old,
	"internal/stats/file.go":          old,
	"internal/stress/proto/header.go": old,
	"internal/stress/run.go":          old,
	"rds/congestion.go":               old,
	"rds/errors.go":                   old,
	"rds/pollfd_linux.go":             old,
	"rds/rpc/errors.go":               old,
	"test/bench/report.go":            old,
	"test/bench/table.go":             old,
	"test/conformance/run_test.go":    old,
	"test/e2e/kill_test.go":           old,
	"test/e2e/upgradestates_test.go":  old,
	"test/ledger/judge/flow.go":       old,
	"test/ledger/judge/judge.go":      old,
	"test/ledger/judge/told.go":       old,
	"test/vmlab/fuzzplan_test.go":     old,
}

const old = "not renamed yet"

// checkReceivers reports types whose methods have receivers of several names, and files in which one
// name is the receiver of several types, by file. files are those of a folder.
func checkReceivers(files []*file) map[string][]string {
	type inPkg struct{ pkg, of string }
	names := map[inPkg]string{}
	found := map[string][]string{}
	for _, f := range files {
		is := map[string]string{} // in this file
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || len(fn.Recv.List[0].Names) == 0 {
				continue
			}
			of, name := receiverType(fn), fn.Recv.List[0].Names[0].Name
			key := inPkg{f.pkg(), of}
			if was := names[key]; was != "" && was != name {
				found[f.name] = append(found[f.name], f.find(fn.Pos(), "receiver", "%s is called %s here and %s elsewhere", of, name, was))
			}
			if was := is[name]; was != "" && was != of {
				found[f.name] = append(found[f.name], f.find(fn.Pos(), "receiver", "%s is of type %s here and %s above", name, of, was))
			}
			names[key], is[name] = name, of
		}
	}
	return found
}

// TestReceivers: the methods of a type call it the same, and one name is one type in a file.
func TestReceivers(t *testing.T) {
	var all []string
	pkgs := packages(t)
	for _, dir := range slices.Sorted(maps.Keys(pkgs)) {
		slices.SortFunc(pkgs[dir], func(a, b *file) int { return cmp.Compare(a.name, b.name) })
		found := checkReceivers(pkgs[dir])
		for _, f := range pkgs[dir] {
			switch reason := manyNames[f.name]; {
			case reason == "":
				all = append(all, found[f.name]...)
			case found[f.name] == nil:
				t.Errorf("%s: receiver: the exception (%s) is not needed any more", f.name, reason)
			}
		}
	}
	for name := range manyNames {
		if !slices.ContainsFunc(pkgs[path.Dir(name)], func(f *file) bool { return f.name == name }) {
			t.Errorf("%s: receiver: an exception for a file that is not there", name)
		}
	}
	report(t, all)
}

// TestReceiverRule: the rule finds what it is for and nothing else.
func TestReceiverRule(t *testing.T) {
	for src, want := range map[string]int{
		"package a\nfunc (x *T) f() {}\nfunc (x T) g() {}\nfunc (T) h() {}":  0,
		"package a\nfunc (x *T[A]) f() {}\nfunc (y *T[A]) g() {}":            1,
		"package a\nfunc (x *T) f() {}\nfunc (x *U) g() {}":                  1,
		"package a\nfunc (x *T) f() {}\nfunc (y *U) g() {}\nfunc f(x *U) {}": 0,
	} {
		if found := checkReceivers([]*file{source(t, "a/a.go", src)})["a/a.go"]; len(found) != want {
			t.Errorf("%s: %q, want %d", src, found, want)
		}
	}
}
