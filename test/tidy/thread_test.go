package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Who may call a function stands in its comment, or in that of its type:
var (
	// A type, or a function, is the thread's.
	ofThread = regexp.MustCompile(`Only (the engine|the owner|its owner)'s thread (may )?(use|call)|implements verbs\.(Device|PD|QP|CQ|SRQ|MR|MW)\.`)
	// A function is the thread, is called while there is none, or takes a function that runs there. A field has such a one.
	isThread = regexp.MustCompile(`is the engine's thread`)
	noThread = regexp.MustCompile(`The engine's thread (does not run|stands still|has ended)`)
	toThread = regexp.MustCompile(`\b(runs|Run executes|run|called) (f )?on the engine's (thread|goroutine)`)
	// A function of such a type is everybody's, or takes a function that runs elsewhere.
	free    = regexp.MustCompile(`(?i)\b(any goroutine may|for any goroutine|other goroutines)\b`)
	toOther = regexp.MustCompile(`\b(on any|in a) goroutine\b`)
)

// threaded are the packages that are checked. In one with outside true all is outside of the thread but
// what its comments say is on it. In the others all is on it but what a goroutine is started with, and
// what that calls.
var threaded = map[string]struct{ outside bool }{
	"internal/daemon": {true},
	"verbs/soft":      {false},
	"internal/rdstcp": {false},
}

// goes are functions of other modules that start a goroutine with what they are given.
var goes = []string{"(*sync.WaitGroup).Go", "time.AfterFunc", "context.AfterFunc"}

// threads checks one package.
type threads struct {
	fset   *token.FileSet
	info   *types.Info
	docs   map[string]string // comments, see docKey
	decls  map[types.Object]*ast.FuncDecl
	lits   map[types.Object]*ast.FuncLit // of local variables
	reach  bool                          // what is called from outside of the thread is outside of it
	off    map[ast.Node]bool             // bodies outside of the thread that were visited
	on     map[ast.Node]bool
	found  []string
	within string // the function that is visited
}

// docKey names what has a comment: folder.function, folder.Type, folder.Type.method or folder.field.
func docKey(o types.Object) string {
	dir := ""
	if o.Pkg() != nil {
		dir = strings.TrimPrefix(o.Pkg().Path(), module+"/")
	}
	if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
		t := f.Signature().Recv().Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		if n, ok := t.(*types.Named); ok {
			return dir + "." + n.Obj().Name() + "." + o.Name()
		}
	}
	return dir + "." + o.Name()
}

// readDocs has the comments of files of a folder, in one line each.
func readDocs(docs map[string]string, dir string, files []*file) {
	note := func(key string, of ...*ast.CommentGroup) {
		text := ""
		for _, c := range of {
			text += strings.Join(strings.Fields(c.Text()), " ")
		}
		docs[dir+"."+key] += text
	}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					note(d.Name.Name, d.Doc)
				} else if of := receiverType(d); of != "" {
					note(of+"."+d.Name.Name, d.Doc)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					t, ok := s.(*ast.TypeSpec)
					if !ok {
						continue
					}
					note(t.Name.Name, d.Doc, t.Doc)
					switch x := t.Type.(type) {
					case *ast.InterfaceType:
						for _, m := range x.Methods.List {
							for _, n := range m.Names {
								note(t.Name.Name+"."+n.Name, m.Doc, m.Comment)
							}
						}
					case *ast.StructType:
						for _, m := range x.Fields.List {
							for _, n := range m.Names {
								note(n.Name, m.Doc, m.Comment)
							}
						}
					}
				}
			}
		}
	}
}

// receiverType is the name of the type of which d is a method.
func receiverType(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// owned reports whether only the thread may use o, a function.
func (t *threads) owned(o types.Object) bool {
	key := docKey(o)
	doc := t.docs[key]
	if free.MatchString(doc) || toThread.MatchString(doc) {
		return false
	}
	if ofThread.MatchString(doc) {
		return true
	}
	of, method := strings.CutSuffix(key, "."+o.Name())
	return method && path.Ext(of) != "" && ofThread.MatchString(t.docs[of]) && !free.MatchString(t.docs[of])
}

// visit goes through a body. off: it is outside of the thread.
func (t *threads) visit(body ast.Node, off bool) {
	seen := t.on
	if off {
		seen = t.off
	}
	if body == nil || seen[body] {
		return
	}
	seen[body] = true
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.leave(n.Call.Fun)
			for _, a := range n.Call.Args {
				t.visit(a, off)
			}
			return false
		case *ast.CallExpr:
			return t.call(n, off)
		case *ast.AssignStmt:
			return t.assign(n)
		case *ast.KeyValueExpr:
			id, ok := n.Key.(*ast.Ident)
			if lit, is := n.Value.(*ast.FuncLit); ok && is && t.info.Uses[id] != nil && toThread.MatchString(t.docs[docKey(t.info.Uses[id])]) {
				t.visit(lit.Body, false)
				return false
			}
		case *ast.Ident:
			t.use(n, off)
		}
		return true
	})
}

// assign visits a function that is assigned to a field whose comment says that it runs on the thread.
func (t *threads) assign(n *ast.AssignStmt) bool {
	for i, left := range n.Lhs {
		if i >= len(n.Rhs) {
			break
		}
		lit, ok := n.Rhs[i].(*ast.FuncLit)
		if !ok {
			continue
		}
		switch left := left.(type) {
		case *ast.SelectorExpr:
			if o := t.info.Uses[left.Sel]; o != nil && toThread.MatchString(t.docs[docKey(o)]) {
				t.visit(lit.Body, false)
				return false
			}
		case *ast.Ident:
			if o := t.info.Defs[left]; o != nil { // where it runs is known when it is used
				t.lits[o] = lit
				return false
			}
		}
	}
	return true
}

// call visits a call: its arguments run where the comment of what is called says.
func (t *threads) call(n *ast.CallExpr, off bool) bool {
	o := t.called(n.Fun)
	if o == nil {
		return true
	}
	f, _ := o.(*types.Func)
	doc := t.docs[docKey(o)]
	to, from := toThread.MatchString(doc), toOther.MatchString(doc) || f != nil && slices.Contains(goes, f.FullName())
	if !to && !from {
		return true
	}
	t.visit(n.Fun, off)
	for _, a := range n.Args {
		if from {
			t.leave(a)
			continue
		}
		t.visit(t.lit(a), false)
	}
	return false
}

// called is the function that an expression names; nil if it names none.
func (t *threads) called(x ast.Expr) types.Object {
	switch x := x.(type) {
	case *ast.Ident:
		return t.info.Uses[x]
	case *ast.SelectorExpr:
		return t.info.Uses[x.Sel]
	}
	return nil
}

// lit is the body of the function that an expression is, if it is one of this function.
func (t *threads) lit(x ast.Expr) ast.Node {
	switch x := x.(type) {
	case *ast.FuncLit:
		return x.Body
	case *ast.Ident:
		if l := t.lits[t.info.Uses[x]]; l != nil {
			return l.Body
		}
	}
	return nil
}

// leave has a function run outside of the thread.
func (t *threads) leave(x ast.Expr) {
	if body := t.lit(x); body != nil {
		t.visit(body, true)
		return
	}
	if o := t.called(x); o == nil || !isThread.MatchString(t.docs[docKey(o)]) {
		t.visit(x, true)
	}
}

// use checks the use of a function.
func (t *threads) use(id *ast.Ident, off bool) {
	if l := t.lits[t.info.Uses[id]]; l != nil {
		t.visit(l.Body, off)
	}
	o, ok := t.info.Uses[id].(*types.Func)
	if !ok || !off {
		return
	}
	if t.owned(o) {
		t.found = append(t.found, t.fset.Position(id.Pos()).String()+": thread: "+t.within+" uses "+docKey(o)+", and only the engine's thread may")
	} else if d := t.decls[o]; d != nil && t.reach && d.Body != nil {
		t.visit(d.Body, true)
	}
}

// checkThreads checks the files of a package, with the comments of all packages. outside is as in threaded.
func checkThreads(fset *token.FileSet, files []*ast.File, info *types.Info, docs map[string]string, outside bool) []string {
	t := &threads{fset: fset, info: info, docs: docs, reach: !outside, decls: map[types.Object]*ast.FuncDecl{},
		lits: map[types.Object]*ast.FuncLit{}, off: map[ast.Node]bool{}, on: map[ast.Node]bool{}}
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				t.decls[info.Defs[fn.Name]] = fn
			}
		}
	}
	for o, fn := range t.decls {
		if fn.Body != nil {
			t.within = fn.Name.Name
			doc := docs[docKey(o)]
			t.visit(fn.Body, outside && !isThread.MatchString(doc) && !noThread.MatchString(doc) && !t.owned(o))
		}
	}
	slices.Sort(t.found)
	return t.found
}

// typed parses and checks the packages of the tree that threaded names, with what they import as the
// compiler has it.
func typed(t *testing.T, do func(dir string, fset *token.FileSet, files []*ast.File, info *types.Info)) {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}
	for dir := range threaded {
		args = append(args, "./"+dir)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	export := map[string]string{}
	type listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	var ours []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		export[p.ImportPath] = p.Export
		if _, ok := threaded[strings.TrimPrefix(p.ImportPath, module+"/")]; ok {
			ours = append(ours, p)
		}
	}
	for _, p := range ours {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(of string) (io.ReadCloser, error) { return os.Open(export[of]) })}
		if _, err := conf.Check(p.ImportPath, fset, files, info); err != nil {
			t.Fatal(err)
		}
		do(strings.TrimPrefix(p.ImportPath, module+"/"), fset, files, info)
	}
}

// TestThread: outside of the engine's thread nobody uses what is its own.
func TestThread(t *testing.T) {
	docs := map[string]string{}
	for dir, all := range packages(t) {
		readDocs(docs, dir, product(all))
	}
	typed(t, func(dir string, fset *token.FileSet, files []*ast.File, info *types.Info) {
		report(t, checkThreads(fset, files, info, docs, threaded[dir].outside))
	})
}
