package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const maxLines = 400

// pure packages are state machines. They have no clock, I/O, lock or goroutine of their
// own, so that the simulator runs the same code as the daemon.
var pure = []string{"conn", "rdmaop", "barrier", "conn/msg", "conn/tcp", "conn/wire", "conn/cong", "conn/frames", "cmsg", "abi", "verbs/sim", "internal/engine", "internal/chores", "internal/ports", "internal/trace"}

// shared are the files of pure packages that several goroutines use. They may have locks
// and start goroutines.
var shared = map[string]string{
	"internal/engine/client.go": "has the flags that a process without a doorbell rings with",
	"internal/trace/trace.go":   "has the ring from which another goroutine takes what a trace tells",
	"internal/engine/inproc.go": "attaches processes of tests and of the simulator, which run on goroutines of their own",
}

// impure names the imports that a pure package may not have, and all below them.
// impureExcept names the exceptions: unix is allowed for its errnos.
var (
	impure       = []string{"os", "net", "sync", "syscall", "runtime", "context", "log", "testing"}
	impureExcept = []string{"net/netip"}
	clock        = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTicker", "NewTimer"}
	unixErrno    = regexp.MustCompile(`^(E[A-Z0-9]+|Errno|AF_INET6?)$`)
)

// public packages document everything they export.
var public = []string{"rds", "afrds", "rdstest", "conn", "barrier", "rdmaop", "cmsg", "abi", "verbs"}

// noExample lists the public packages that have no example that can run.
var noExample = map[string]string{
	"conn/msg":                 "has the records of conn and conn/tcp; conn has the example",
	"conn/tcp":                 "needs a peer that plays RDS/TCP: its tests do",
	"verbs/ibv":                "needs an RDMA device; verbs has the example",
	"verbs/verbstest":          "is a test suite; the tests of verbs/sim run it",
	"verbs/soft/iwarp":         "has the frames of verbs/soft, whose example runs them",
	"verbs/soft/tls13":         "has the records of verbs/soft",
	"verbs/soft/tls13/tlstest": "makes certificates for tests",
}

// unsafeIn lists where unsafe may be used outside files named *_unsafe.go.
var unsafeIn = map[string]string{
	"internal/shm":    "lays typed rings and tables over shared memory",
	"internal/stats":  "lays counters over the statistics mapping",
	"verbs/ibv":       "passes work requests and addresses to C",
	"verbs/soft":      "lays out iovecs and epoll events for raw system calls",
	"verbs/verbstest": "aligns the memory it registers to pages",
}

// The words are in pieces so that this file does not contain them.
var (
	unfinished = regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|X" + `XX)\b`)
	foreign    = []string{"/wo" + "rk/", "../sha" + "red"}
)

// file is one Go file.
type file struct {
	name string // slash-separated, relative to the root
	fset *token.FileSet
	ast  *ast.File
}

func (f *file) dir() string  { return path.Dir(f.name) }
func (f *file) test() bool   { return strings.HasSuffix(f.name, "_test.go") }
func (f *file) pkg() string  { return f.ast.Name.Name }
func (f *file) isPure() bool { return slices.Contains(pure, f.dir()) && !f.test() }

// find is a finding: where it is, which rule is broken, and how.
func (f *file) find(at token.Pos, rule, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s: %s", f.name, f.fset.Position(at).Line, rule, fmt.Sprintf(format, args...))
}

func (f *file) imports(yield func(path string, at token.Pos) bool) {
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil && !yield(p, spec.Pos()) {
			return
		}
	}
}

// under reports whether p is one of list or below one.
func under(p string, list []string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return p == l || strings.HasPrefix(p, l+"/") })
}

func checkCgo(f *file) (found []string) {
	for p, at := range f.imports {
		if p == "C" && f.dir() != "verbs/ibv" && f.dir() != "test/bench/peers" {
			found = append(found, f.find(at, "cgo", "only verbs/ibv, and test/bench/peers, a module of its own, may use cgo"))
		}
	}
	return found
}

func checkUnsafe(f *file) (found []string) {
	if f.test() || strings.HasSuffix(f.name, "_unsafe.go") || unsafeIn[f.dir()] != "" {
		return nil
	}
	for p, at := range f.imports {
		if p == "unsafe" {
			found = append(found, f.find(at, "unsafe", "move it to a file named *_unsafe.go"))
		}
	}
	return found
}

// checkLoopback finds addresses of 127/8 that are drawn, by a random number or the
// number of the process: another program may draw the same.
func checkLoopback(f *file) (found []string) {
	if f.dir() == "internal/test/loopback" {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || len(lit.Elts) != 4 {
			return true
		}
		if first, ok := lit.Elts[0].(*ast.BasicLit); !ok || first.Value != "127" {
			return true
		}
		drawn := false
		ast.Inspect(lit, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				x, ok := sel.X.(*ast.Ident)
				drawn = drawn || ok && (x.Name == "rand" || sel.Sel.Name == "Getpid")
			}
			return true
		})
		if drawn {
			found = append(found, f.find(lit.Pos(), "loopback", "must not draw an address of 127/8: reserve one with internal/test/loopback"))
		}
		return false
	})
	return found
}

func checkPure(f *file) (found []string) {
	if !f.isPure() {
		return nil
	}
	names := map[string]string{} // local name of the packages watched below
	for p, at := range f.imports {
		if under(p, impure) && !slices.Contains(impureExcept, p) && (!under(p, []string{"sync"}) || shared[f.name] == "") {
			found = append(found, f.find(at, "pure core", "must not import %s", p))
		}
		if p == "time" || p == "golang.org/x/sys/unix" {
			names[localName(f, p)] = p
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if shared[f.name] == "" {
				found = append(found, f.find(n.Pos(), "pure core", "must not start goroutines"))
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			switch p := names[x.Name]; {
			case p == "time" && slices.Contains(clock, n.Sel.Name):
				found = append(found, f.find(n.Pos(), "pure core", "must not use time.%s: take now as an argument", n.Sel.Name))
			case p == "golang.org/x/sys/unix" && !unixErrno.MatchString(n.Sel.Name):
				found = append(found, f.find(n.Pos(), "pure core", "must not use unix.%s: only errnos", n.Sel.Name))
			}
		}
		return true
	})
	return found
}

func localName(f *file, p string) string {
	for _, spec := range f.ast.Imports {
		if spec.Path.Value == strconv.Quote(p) && spec.Name != nil {
			return spec.Name.Name
		}
	}
	return path.Base(p)
}

// checkText checks any text file: the words, and the length of a Go file.
func checkText(name, text string) (found []string) {
	if n := strings.Count(text, "\n"); n > maxLines && strings.HasSuffix(name, ".go") {
		found = append(found, fmt.Sprintf("%s: length: %d lines, at most %d: split it by ideas", name, n, maxLines))
	}
	for i, line := range strings.Split(text, "\n") {
		if w := unfinished.FindString(line); w != "" {
			found = append(found, fmt.Sprintf("%s:%d: unfinished: %q: do it, or return an error that says it is not supported", name, i+1, w))
		}
		for _, w := range foreign {
			if strings.Contains(line, w) {
				found = append(found, fmt.Sprintf("%s:%d: foreign path: %q means nothing to a reader", name, i+1, w))
			}
		}
	}
	return found
}
