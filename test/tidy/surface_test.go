package tidy

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// surface looks through a package's exports for types that a program outside the module
// cannot name: types of internal packages, and types that their own package does not
// export.
type surface struct {
	pkg   *types.Package
	seen  map[types.Type]bool
	found []string
}

// checkSurface returns what is wrong with the exported names of pkg: its constants,
// variables, functions and types, and the fields and methods of the types.
func checkSurface(pkg *types.Package) []string {
	s := &surface{pkg: pkg, seen: map[types.Type]bool{}}
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		if t, ok := obj.(*types.TypeName); ok {
			s.declared(t)
		} else {
			s.mentions(name, obj.Type())
		}
	}
	return s.found
}

// declared checks an exported type's own declaration.
func (s *surface) declared(t *types.TypeName) {
	if alias, ok := t.Type().(*types.Alias); ok {
		s.mentions(t.Name(), alias.Rhs())
		return
	}
	named := t.Type().(*types.Named)
	for p := range named.TypeParams().TypeParams() {
		s.mentions(t.Name(), p.Constraint())
	}
	s.inside(t.Name(), named)
}

// inside checks the exported fields and methods of a type, those promoted from embedded
// fields included. Of a type without fields it checks the underlying type.
func (s *surface) inside(name string, t *types.Named) {
	if s.seen[t] {
		return
	}
	s.seen[t] = true
	for m := range t.Methods() {
		if m.Exported() {
			s.mentions(name+"."+m.Name(), m.Type())
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() {
				s.mentions(name+"."+f.Name(), f.Type())
			} else if f.Embedded() {
				s.embedded(name, f.Type())
			}
		}
	default:
		s.mentions(name, u)
	}
}

// embedded checks what an embedded field of an unexported type promotes.
func (s *surface) embedded(name string, t types.Type) {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok {
		s.inside(name, n)
	}
}

// mentions reports each type in t that cannot be named.
func (s *surface) mentions(name string, t types.Type) {
	switch t := t.(type) {
	case *types.Named:
		s.named(name, t.Obj())
		for a := range t.TypeArgs().Types() {
			s.mentions(name, a)
		}
	case *types.Alias:
		s.named(name, t.Obj())
	case *types.Pointer:
		s.mentions(name, t.Elem())
	case *types.Slice:
		s.mentions(name, t.Elem())
	case *types.Array:
		s.mentions(name, t.Elem())
	case *types.Chan:
		s.mentions(name, t.Elem())
	case *types.Map:
		s.mentions(name, t.Key())
		s.mentions(name, t.Elem())
	case *types.Signature:
		for p := range t.TypeParams().TypeParams() {
			s.mentions(name, p.Constraint())
		}
		s.mentions(name, t.Params())
		s.mentions(name, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			s.mentions(name, v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			s.mentions(name, f.Type())
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			s.mentions(name+"."+m.Name(), m.Type())
		}
		for e := range t.EmbeddedTypes() {
			s.mentions(name, e)
		}
	case *types.Union:
		for term := range t.Terms() {
			s.mentions(name, term.Type())
		}
	}
}

// named reports the type that obj declares, unless it can be named.
func (s *surface) named(name string, obj *types.TypeName) {
	p := obj.Pkg()
	if p == nil { // a predeclared type
		return
	}
	short := strings.TrimPrefix(p.Path(), module+"/") + "." + obj.Name()
	switch {
	case slices.Contains(strings.Split(p.Path(), "/"), "internal"):
		s.found = append(s.found, fmt.Sprintf("%s.%s: public surface: names %s, which nobody outside the module can", s.pkg.Name(), name, short))
	case !obj.Exported():
		s.found = append(s.found, fmt.Sprintf("%s.%s: public surface: names %s, which is not exported", s.pkg.Name(), name, short))
	}
}

// TestPublicSurface: a program outside the module can name every type that a
// public package shows.
func TestPublicSurface(t *testing.T) {
	var args []string
	for _, p := range public {
		args = append(args, "./"+p+"/...")
	}
	cmd := exec.Command("go", append([]string{"list", "-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}"}, args...)...)
	cmd.Dir = root(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[pkg] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(pkg string) (io.ReadCloser, error) { return os.Open(exports[pkg]) })
	seen := map[string]bool{}
	for pkg := range exports {
		short, ours := strings.CutPrefix(pkg, module+"/")
		if !ours || !under(short, public) || strings.Contains(short, "/internal/") {
			continue
		}
		p, err := imports.Import(pkg)
		if err != nil {
			t.Fatal(err)
		}
		seen[short] = true
		report(t, checkSurface(p))
		if short == "rds" {
			if names, fields := face(p); names > maxNames || fields > maxFields {
				t.Errorf("package rds shows %d names and %d fields, want at most %d and %d: docs/stability.md promises them for good", names, fields, maxNames, maxFields)
			}
		}
	}
	for _, p := range public {
		if !seen[p] {
			t.Errorf("%s is public, and was not looked at", p)
		}
	}
}

// What package rds shows is at most so much: each name is promised for good.
const (
	maxNames  = 119
	maxFields = 95
)

// face counts what a package shows: names are its exported constants, variables, functions and
// types, and the exported methods that it declares for them; fields are the exported fields of
// its exported structs.
func face(pkg *types.Package) (names, fields int) {
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		names++
		n, ok := obj.Type().(*types.Named)
		if _, isType := obj.(*types.TypeName); !ok || !isType {
			continue
		}
		for m := range n.Methods() {
			if m.Exported() {
				names++
			}
		}
		if u, ok := n.Underlying().(*types.Struct); ok {
			for f := range u.Fields() {
				if f.Exported() {
					fields++
				}
			}
		}
	}
	return names, fields
}

// sourceImporter type-checks packages given as text.
type sourceImporter map[string]string

func (si sourceImporter) Import(pkg string) (*types.Package, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, pkg+"/a.go", si[pkg], 0)
	if err != nil {
		return nil, err
	}
	return (&types.Config{Importer: si}).Check(pkg, fset, []*ast.File{f}, nil)
}

// TestSurfaceRule: the rule finds the mistakes that it is for and nothing else.
func TestSurfaceRule(t *testing.T) {
	const in = module + "/internal/in"
	for _, c := range []struct{ src, want string }{
		{`func F(x in.T) {}`, "F: public surface: names internal/in.T"},
		{`func F() (x map[string][]*in.T) { return }`, "F: public surface"},
		{`func F(f func(...in.T)) {}`, "F: public surface"},
		{`func F[P in.I]() {}`, "F: public surface: names internal/in.I"},
		{`var V in.T`, "V: public surface"},
		{`const C = in.K`, "C: public surface: names internal/in.N"},
		{`type T struct{ A in.T }`, "T.A: public surface"},
		{`type T struct{ in.T }`, "T.T: public surface"},
		{`type T struct{ hidden }; type hidden struct{ A in.T }`, "T.A: public surface"},
		{`type T struct{ *hidden }; type hidden struct{}; func (hidden) M(in.T) {}`, "T.M: public surface"},
		{`type T struct{}; func (*T) M() (in.T, error) { panic(0) }`, "T.M: public surface"},
		{`type T interface{ M(in.T) }`, "T.M: public surface"},
		{`type T interface{ in.I }`, "T: public surface: names internal/in.I"},
		{`type T = in.T`, "T: public surface"},
		{`type T []in.T`, "T: public surface"},
		{`type T[P in.I] struct{}`, "T: public surface: names internal/in.I"},
		{`type G[P any] struct{}; func F(G[in.T]) {}`, "F: public surface"},
		{`func F() hidden { return 0 }; type hidden int`, "F: public surface: names conn.hidden, which is not exported"},

		{`func f(x in.T) {}; type hidden struct{ A in.T }`, ""},
		{`type T struct{ a in.T }; func (T) m(in.T) {}`, ""},
		{`type T struct{ hidden }; type hidden struct{ a in.T; B int }`, ""},
		{`type T struct{ Next *T; Err error }; func F(T) (*T, error) { return nil, nil }`, ""},
		{`const C = int(in.K)`, ""},
	} {
		pkg := module + "/conn"
		si := sourceImporter{
			in:  "package in; type T struct{}; type I interface{ M() }; type N int; const K N = 1",
			pkg: "package conn; import \"" + in + "\"; type _ in.T; " + c.src,
		}
		p, err := si.Import(pkg)
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		found := checkSurface(p)
		if c.want == "" && len(found) == 0 || len(found) == 1 && c.want != "" && strings.Contains(found[0], path.Base(pkg)+"."+c.want) {
			continue
		}
		t.Errorf("%s\nfound %q, want %q", c.src, found, c.want)
	}
}
