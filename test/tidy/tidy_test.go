package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rdsd/rdsd"

// root is the module's directory, two above this package's.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sources calls do for each text file of the tree.
func sources(t *testing.T, do func(name, text string)) {
	t.Helper()
	dir := root(t)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		name := filepath.ToSlash(rel)
		if d.IsDir() {
			if name == ".git" || name == "bin" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if name == ".git" || !isText(name) { // .git is a file in a second work tree
			return nil
		}
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) { // an editor's or a test's temporary file
			return nil
		}
		if err == nil {
			do(name, string(b))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isText(name string) bool {
	exts := []string{".go", ".md", ".sh", ".toml", ".yml", ".yaml", ".txt", ".mod", ".c", ".h", ".service"}
	return slices.Contains(exts, path.Ext(name)) || path.Ext(name) == "" || strings.HasPrefix(path.Base(name), ".")
}

// packages parses the tree's Go files by directory, those of all build tags included.
func packages(t *testing.T) map[string][]*file {
	t.Helper()
	fset := token.NewFileSet()
	pkgs := map[string][]*file{}
	sources(t, func(name, text string) {
		if path.Ext(name) != ".go" {
			return
		}
		tree, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		f := &file{name, fset, tree}
		pkgs[f.dir()] = append(pkgs[f.dir()], f)
	})
	return pkgs
}

func product(files []*file) []*file {
	return slices.DeleteFunc(slices.Clone(files), (*file).test)
}

func report(t *testing.T, found []string) {
	t.Helper()
	slices.Sort(found)
	for _, f := range found {
		t.Error(f)
	}
}

// ownModules returns the folders with modules of their own that are checked as the main one is.
func ownModules(t *testing.T) []string {
	m := regexp.MustCompile(`(?m)^MODULES=\((.+)\)$`).FindStringSubmatch(readDoc(t, "scripts/lib.sh"))
	if m == nil {
		t.Fatal("scripts/lib.sh has no MODULES")
	}
	return strings.Fields(m[1])
}

// unplanned are the modules that no stage of scripts/test.sh plans: scripts/lint.sh runs the
// tests of contrib/kubernetes, test/bench/peers needs cgo and is not built by tests, and test/wycheproof
// has 100 MB of vectors (make wycheproof).
var unplanned = []string{"contrib/kubernetes", "test/bench/peers", "test/wycheproof"}

// TestModules: every module of the tree is checked.
func TestModules(t *testing.T) {
	want := slices.Concat(ownModules(t), unplanned, []string{"."})
	slices.Sort(want)
	var got []string
	sources(t, func(name, _ string) {
		if path.Base(name) == "go.mod" {
			got = append(got, path.Dir(name))
		}
	})
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("modules: %v, and MODULES of scripts/lib.sh with the others: %v", got, want)
	}
}

func TestImports(t *testing.T) {
	dir := root(t)
	doc, err := os.ReadFile(filepath.Join(dir, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := parseTable(string(doc))
	if err != nil {
		t.Fatalf("docs/architecture.md: %v", err)
	}
	var out []byte
	for _, of := range append([]string{"."}, ownModules(t)...) {
		cmd := exec.Command("go", "list", "-e", "-deps=false", "-json=ImportPath,Imports,GoFiles,CgoFiles", "./...")
		cmd.Dir = filepath.Join(dir, of)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		listed, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v\n%s", of, err, stderr.Bytes())
		}
		out = append(out, listed...)
	}
	var found []string
	seen := 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; seen++ {
		var p struct {
			ImportPath        string
			Imports           []string
			GoFiles, CgoFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkg := strings.TrimPrefix(p.ImportPath, module+"/")
		if len(p.GoFiles)+len(p.CgoFiles) == 0 {
			continue // tests only
		}
		found = append(found, checkListed(rows, pkg))
		for _, dep := range p.Imports {
			if dep, ours := strings.CutPrefix(dep, module+"/"); ours {
				found = append(found, checkImport(rows, pkg, dep))
			}
		}
	}
	if seen < 10 {
		t.Errorf("go list named %d packages only", seen)
	}
	report(t, slices.DeleteFunc(found, func(s string) bool { return s == "" }))
}

func TestFiles(t *testing.T) {
	var found []string
	for _, files := range packages(t) {
		for _, f := range files {
			found = slices.Concat(found, checkCgo(f), checkUnsafe(f), checkLoopback(f), checkPure(f))
		}
	}
	report(t, found)
}

func TestText(t *testing.T) {
	var found []string
	sources(t, func(name, text string) { found = append(found, checkText(name, text)...) })
	report(t, found)
}

func TestDocComments(t *testing.T) {
	var found []string
	for dir, all := range packages(t) {
		files := product(all)
		if len(files) == 0 || !under(dir, append([]string{"contrib"}, public...)) || strings.Contains(dir, "/internal/") {
			continue
		}
		found = append(found, checkDocs(files)...)
		if noExample[dir] == "" {
			found = append(found, checkExample(all)...)
		}
	}
	report(t, found)
}

// Each test that the documents name, as `dir.TestName`, exists.
func TestNamedTests(t *testing.T) {
	have := map[string]bool{}
	for dir, files := range packages(t) {
		for _, f := range files {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.test() {
					have[dir+"."+fn.Name.Name] = true
				}
			}
		}
	}
	named := regexp.MustCompile("`([a-z0-9/]+\\.(?:Test|Fuzz)[A-Za-z0-9_]+)`")
	seen := 0
	sources(t, func(name, text string) {
		if path.Ext(name) != ".md" {
			return
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			seen++
			if !have[m[1]] {
				t.Errorf("%s: named tests: there is no %s", name, m[1])
			}
		}
	})
	if seen == 0 {
		t.Error("no document names a test")
	}
}

// An exception that is not needed is an error.
func TestExceptions(t *testing.T) {
	pkgs := packages(t)
	for dir, reason := range noExample {
		if len(pkgs[dir]) == 0 || len(checkExample(pkgs[dir])) == 0 {
			t.Errorf("%s: example: the exception (%s) is not needed any more", dir, reason)
		}
	}
	for dir, reason := range unsafeIn {
		if _, ok := pkgs[dir]; !ok {
			continue
		}
		used := slices.ContainsFunc(product(pkgs[dir]), func(f *file) bool {
			return slices.ContainsFunc(f.ast.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"unsafe"` })
		})
		if !used {
			t.Errorf("%s: unsafe: the exception (%s) is not needed any more", dir, reason)
		}
	}
}
