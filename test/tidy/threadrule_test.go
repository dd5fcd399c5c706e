package tidy

import (
	"go/ast"
	"go/types"
	"testing"
)

// TestThreadRule: the rule finds what it is for and nothing else.
func TestThreadRule(t *testing.T) {
	const common = `package a

// E is what is driven. Only the engine's thread may use it.
type E struct{}

func (*E) turn() {}

// count counts. Any goroutine may call it.
func (*E) count() {}

// do runs f on the engine's thread.
func (*E) do(f func()) {}

// other runs f in a goroutine.
func other(f func()) {}

// hook is called by e.
type hook struct {
	on func() // called on the engine's thread
	off func()
}

// its is a part. Only the engine's thread calls it.
func its(e *E) { e.turn() }

// opens makes it. The engine's thread does not run yet.
func opens(e *E) { e.turn() }

// run is the engine's thread.
func run(e *E) { e.turn() }
`
	for src, want := range map[string]struct{ outside, inside int }{
		"func f(e *E) { e.turn() }":                                          {1, 0},
		"func f(e *E) { its(e) }":                                            {1, 0},
		"func f(e *E) { opens(e); e.count(); e.do(e.turn) }":                 {0, 0},
		"func f(e *E) { e.do(func() { e.turn(); its(e) }) }":                 {0, 0},
		"func f(e *E) { e.do(func() { go e.turn() }) }":                      {1, 1},
		"func f(e *E) { e.do(func() { go func() { e.turn() }() }) }":         {1, 1},
		"func f(e *E) { g := func() { e.turn() }; e.do(g) }":                 {0, 0},
		"func f(e *E) { g := func() { e.turn() }; e.do(g); g() }":            {1, 0},
		"func f(e *E) { go run(e) }":                                         {0, 0},
		"func f(e *E) { go its(e) }":                                         {1, 1},
		"func f(e *E) { other(func() { g(e) }) }\nfunc g(e *E) { e.turn() }": {1, 1},
		"func f(e *E) { h := hook{on: func() { e.turn() }}; _ = h }":         {0, 0},
		"func f(e *E) { h := hook{off: func() { e.turn() }}; _ = h }":        {1, 0},
		"func f(e *E, h *hook) { h.on = func() { e.turn() } }":               {0, 0},
	} {
		f := source(t, "a/a.go", common+src)
		docs := map[string]string{}
		readDocs(docs, "a", []*file{f})
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		if _, err := new(types.Config).Check("a", f.fset, []*ast.File{f.ast}, info); err != nil {
			t.Fatalf("%s: %v", src, err)
		}
		for outside, n := range map[bool]int{true: want.outside, false: want.inside} {
			if found := checkThreads(f.fset, []*ast.File{f.ast}, info, docs, outside); len(found) != n {
				t.Errorf("%s: outside %v: %q, want %d", src, outside, found, n)
			}
		}
	}
}
