package tidy

import (
	"cmp"
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// manyNames lists files in which one name is the receiver of several types, or a type has another one than
// elsewhere.
var manyNames = map[string]string{
	"internal/ipc/codec.go":    "a message is m, whichever it is",
	"internal/ipc/messages.go": "a message is m, whichever it is",
}

func init() {
	// Files in which the names came before the rule: no other may join them.
	for _, name := range []string{
		"cmd/rdsctl/options.go",
		"examples/rping/link.go",
		"examples/rping/server.go",
		"internal/ctl/rows.go",
		"internal/engine/bytcp.go",
		"internal/engine/chores.go",
		"internal/engine/listed.go",
		"internal/engine/look.go",
		"internal/engine/loop.go",
		"internal/engine/meant.go",
		"internal/engine/simcheck.go",
		"internal/engine/throttle.go",
		"internal/engine/took.go",
		"internal/metrics/crowd_test.go",
		"internal/stats/file.go",
		"internal/stress/proto/header.go",
		"internal/stress/run.go",
		"rds/congestion.go",
		"rds/errors.go",
		"rds/pollfd_linux.go",
		"rds/rpc/errors.go",
		"test/bench/floor_host.go",
		"test/bench/report.go",
		"test/bench/table.go",
		"test/conformance/run_test.go",
		"test/e2e/kill_test.go",
		"test/e2e/upgradestates_test.go",
		"test/ledger/judge/flow.go",
		"test/ledger/judge/judge.go",
		"test/ledger/judge/told.go",
		"test/vmlab/fuzzplan_test.go",
	} {
		manyNames[name] = "not renamed yet"
	}
}

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
