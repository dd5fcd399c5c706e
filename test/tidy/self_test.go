package tidy

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

func source(t *testing.T, name, src string) *file {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return &file{name, fset, tree}
}

// Each rule finds the mistakes that it is for and nothing else.
func TestRules(t *testing.T) {
	one := func(rule func([]*file) []string) func(*file) []string {
		return func(f *file) []string { return rule([]*file{f}) }
	}
	for _, c := range []struct {
		rule      func(*file) []string
		name, src string
		want      string // part of the only finding, "" for none
	}{
		{checkCgo, "conn/a.go", `package conn; import "C"`, "conn/a.go:1: cgo"},
		{checkCgo, "verbs/ibv/a.go", `package ibv; import "C"`, ""},

		{checkUnsafe, "rds/a.go", `package rds; import "unsafe"`, "rds/a.go:1: unsafe"},
		{checkUnsafe, "rds/a_unsafe.go", `package rds; import "unsafe"`, ""},
		{checkUnsafe, "rds/a_test.go", `package rds; import "unsafe"`, ""},
		{checkUnsafe, "internal/shm/a.go", `package shm; import "unsafe"`, ""},

		{checkLoopback, "rds/a_test.go", "package rds\nvar a = [4]byte{127, byte(rand.IntN(9)), byte(rand.IntN(9)), 1}", "rds/a_test.go:2: loopback"},
		{checkLoopback, "rds/a_test.go", "package rds\nvar a = [4]byte{127, 1, byte(os.Getpid()), 1}", "rds/a_test.go:2: loopback"},
		{checkLoopback, "rds/a_test.go", "package rds\nvar a = [4]byte{127, 0, 1, byte(i)}", ""},
		{checkLoopback, "internal/test/loopback/a.go", "package loopback\nvar a = [4]byte{127, byte(rand.IntN(9)), 0, 0}", ""},

		{checkPure, "conn/a.go", `package conn; import "sync"`, "must not import sync"},
		{checkPure, "conn/a.go", `package conn; import "sync/atomic"`, "must not import sync/atomic"},
		{checkPure, "conn/a.go", `package conn; import "net"`, "must not import net"},
		{checkPure, "internal/engine/a.go", "package engine\nimport \"net\"", "pure core"},
		{checkPure, "internal/engine/a.go", "package engine\nimport \"log/slog\"", "pure core"},
		{checkPure, "internal/engine/a.go", "package engine\nimport \"sync\"", "pure core"},
		{checkPure, "internal/engine/a.go", "package engine\nfunc f() { go f() }", "pure core"},
		{checkPure, "internal/engine/client.go", "package engine\nimport \"sync\"", ""},
		{checkPure, "internal/engine/client.go", "package engine\nimport \"os\"", "pure core"},
		{checkPure, "verbs/sim/a.go", "package sim\nimport \"sync\"", "pure core"},
		{checkPure, "cmsg/a.go", `package cmsg; import "syscall"`, "must not import syscall"},
		{checkPure, "conn/a.go", `package conn; import "net/netip"`, ""},
		{checkPure, "conn/a.go", `package conn; import "net/netipx"`, "must not import net/netipx"},
		{checkPure, "conn/a_test.go", `package conn; import "sync"`, ""},
		{checkPure, "rds/a.go", `package rds; import "sync"`, ""},
		{checkPure, "conn/a.go", "package conn; import \"time\"\nvar t = time.Now()", "conn/a.go:2: pure core: must not use time.Now"},
		{checkPure, "conn/a.go", `package conn; import t "time"; var c = t.After(1)`, "must not use time.After"},
		{checkPure, "conn/a.go", `package conn; import "time"; const d = int64(time.Second)`, ""},
		{checkPure, "conn/a.go", `package conn; var time struct{ Now func() }; var f = time.Now`, ""},
		{checkPure, "conn/a.go", `package conn; func f() { go f() }`, "must not start goroutines"},
		{checkPure, "rdmaop/a.go", `package rdmaop; import "golang.org/x/sys/unix"; var e = unix.Errno(unix.EINVAL)`, ""},
		{checkPure, "rdmaop/a.go", `package rdmaop; import "golang.org/x/sys/unix"; var e = unix.Getpid()`, "must not use unix.Getpid"},

		{one(checkExample), "conn/a.go", "package conn", "conn/a.go:1: example: package conn has none"},
		{one(checkExample), "conn/a_test.go", "package conn\nfunc Example() {\n}", "example: package conn"},
		{one(checkExample), "conn/a.go", "package conn\nfunc Example() {\n\t// Output: 1\n}", "example: package conn"},
		{one(checkExample), "conn/a_test.go", "package conn\nfunc ExampleT_m() {\n\t// Output: 1\n}", ""},

		{one(checkDocs), "conn/a.go", "package conn\nfunc F() {}", "conn/a.go:2: doc comment: F"},
		{one(checkDocs), "conn/a.go", "package conn\n// F does.\nfunc F() {}", ""},
		{one(checkDocs), "conn/a.go", "package conn\nfunc f() {}", ""},
		{one(checkDocs), "conn/a.go", "package conn\ntype t int\nfunc (t) M() {}", ""},
		{one(checkDocs), "conn/a.go", "package conn\n// T is.\ntype T[A any] int\nfunc (*T[A]) M() {}", "doc comment: M"},
		{one(checkDocs), "conn/a.go", "package conn\n// T is.\ntype T int\nfunc (T) String() string { return \"\" }", ""},
		{one(checkDocs), "conn/a.go", "package conn\n// T is.\ntype T int\nfunc (T) String(n int) string { return \"\" }", "doc comment: String"},
		{one(checkDocs), "conn/a.go", "package conn\ntype T int", "doc comment: T"},
		{one(checkDocs), "conn/a.go", "package conn\nvar V int", "doc comment: V"},
		{one(checkDocs), "conn/a.go", "package conn\nvar V int // is", ""},
		{one(checkDocs), "conn/a.go", "package conn\n// Some.\nconst (\nA = 1\nB = 2\n)", ""},
		{one(checkDocs), "conn/a.go", "package conn\nconst (\nA = 1 // a\nB = 2\n)", "doc comment: B"},
		{one(checkDocs), "conn/a.go", "package conn\n// T is.\ntype T int\nconst (\nA T = iota\nB\n)", ""},
		{one(checkDocs), "conn/a.go", "package conn\n// T is.\ntype T int\nconst (\nA T = iota\nB\nC = 7\n)", "doc comment: C"},
	} {
		found := c.rule(source(t, c.name, c.src))
		if c.want == "" && len(found) == 0 || len(found) == 1 && c.want != "" && strings.Contains(found[0], c.want) {
			continue
		}
		t.Errorf("%s: %s\nfound %q, want %q", c.name, c.src, found, c.want)
	}
}

func TestTextRule(t *testing.T) {
	long := strings.Repeat("x\n", maxLines)
	for _, c := range []struct{ name, text, want string }{
		{"a.go", long, ""},
		{"a.go", long + "x\n", "a.go: length: 401 lines"},
		{"a.md", long + "x\n", ""},
		{"a.go", "ok\n// TO" + "DO: later", "a.go:2: unfinished"},
		{"a.sh", "mktemp /tmp/rdsd.XX" + "XXXX", ""},
		{"a.md", "see /wo" + "rk/x", "a.md:1: foreign path"},
		{"a.md", "the network/ and works", ""},
	} {
		found := checkText(c.name, c.text)
		if c.want == "" && len(found) == 0 || len(found) == 1 && c.want != "" && strings.Contains(found[0], c.want) {
			continue
		}
		t.Errorf("%s: found %q, want %q", c.name, found, c.want)
	}
}

func TestImportTable(t *testing.T) {
	rows, err := parseTable(`# Architecture
| other | table |
| package | what it is | may import (of ours) |
|---|---|---|
| cmd/*, e2e | programs | anything below |
| rds | client | cmsg |
| daemon | engine | all below except wire |
| cmsg, wire | leaves | - |

| package-less | more | text |
`)
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, c := range []struct {
		pkg, dep string
		ok       bool
	}{
		{"cmd/rdsd", "rds", true},
		{"cmd/rdsd", "daemon", true},
		{"e2e", "wire", true},
		{"e2e", "cmd/rdsd", false},
		{"rds", "cmsg", true},
		{"rds", "wire", false},
		{"rds", "daemon", false},
		{"daemon", "cmsg", true},
		{"daemon", "wire", false},
		{"daemon", "rds", false},
		{"daemon", "daemon", false},
		{"cmsg", "wire", false},
		{"wire", "cmd/rdsd", false},
	} {
		if got := checkImport(rows, c.pkg, c.dep); (got == "") != c.ok {
			t.Errorf("%s imports %s: %q, want ok %v", c.pkg, c.dep, got, c.ok)
		}
	}
	if checkListed(rows, "cmd") == "" || checkListed(rows, "new") == "" || checkListed(rows, "cmd/x") != "" {
		t.Error("checkListed")
	}
	for _, doc := range []string{"no table", "| package |\n| a | b |\n"} {
		if _, err := parseTable(doc); err == nil {
			t.Errorf("%q: no error", doc)
		}
	}
}
