package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// places knows what each Go file of the tree declares: functions, types, variables and
// constants by their names, methods, fields and an interface's methods as T.M and as M.
type places map[string]map[string]bool

func newPlaces(pkgs map[string][]*file) places {
	p := places{}
	for _, files := range pkgs {
		for _, f := range files {
			names := map[string]bool{}
			for _, d := range f.ast.Decls {
				addNames(names, d)
			}
			p[f.name] = names
		}
	}
	return p
}

func addNames(names map[string]bool, d ast.Decl) {
	if fn, ok := d.(*ast.FuncDecl); ok {
		names[fn.Name.Name] = true
		if fn.Recv != nil {
			names[receiver(fn.Recv.List[0].Type)+"."+fn.Name.Name] = true
		}
		return
	}
	for _, s := range d.(*ast.GenDecl).Specs {
		switch s := s.(type) {
		case *ast.ValueSpec:
			for _, n := range s.Names {
				names[n.Name] = true
			}
		case *ast.TypeSpec:
			names[s.Name.Name] = true
			for _, f := range members(s.Type) {
				for _, n := range f.Names {
					names[s.Name.Name+"."+n.Name] = true
				}
			}
		}
	}
}

// receiver returns the name of a method's type.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

func members(x ast.Expr) []*ast.Field {
	switch x := x.(type) {
	case *ast.StructType:
		return x.Fields.List
	case *ast.InterfaceType:
		return x.Methods.List
	}
	return nil
}

// files returns the files that pattern, which may be the name of a folder, stands for.
func (p places) files(pattern string) (found []string) {
	for name := range p {
		if ok, _ := path.Match(pattern, name); ok || path.Dir(name) == pattern {
			found = append(found, name)
		}
	}
	return found
}

// declares reports whether one of files declares name.
func (p places) declares(files []string, name string) bool {
	return slices.ContainsFunc(files, func(f string) bool { return p[f][name] })
}

var (
	quoted     = regexp.MustCompile("`([^`]+)`")
	goFile     = regexp.MustCompile(`^[\w/*.-]+\.go$`)
	identifier = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`)
)

// check returns what is wrong with text, in which names are quoted. A path is one from
// the top of the tree. A file without a folder is in the folder named before it. A name
// is declared in the file or folder named before it, or begins with its package.
func (p places) check(text string) (found []string) {
	dir, here := "", []string(nil)
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		name := m[1]
		switch folder := p.files(name); {
		case len(folder) > 0 && !goFile.MatchString(name):
			dir, here = name, folder
		case goFile.MatchString(name):
			if !strings.Contains(name, "/") {
				name = path.Join(dir, name)
			}
			dir, here = path.Dir(name), p.files(name)
			if len(here) == 0 {
				found = append(found, "there is no file "+name)
			}
		case identifier.MatchString(name):
			if !p.declares(here, name) && !p.qualified(name) {
				found = append(found, fmt.Sprintf("%s is not declared in %s", name, strings.Join(here, ", ")))
			}
		default:
			found = append(found, name+" is neither a file nor a name")
		}
	}
	return found
}

// qualified reports whether name is that of a package, and then of something in it.
func (p places) qualified(name string) bool {
	pkg, name, _ := strings.Cut(name, ".")
	for f, names := range p {
		if path.Base(path.Dir(f)) == pkg && names[name] {
			return true
		}
	}
	return false
}

// TestPlaces: what the column "where" of docs/glossary.md names is where it says.
func TestPlaces(t *testing.T) {
	p := newPlaces(packages(t))
	seen := 0
	for line := range strings.Lines(readDoc(t, "docs/glossary.md")) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		seen++
		for _, what := range p.check(cells[len(cells)-1]) {
			t.Errorf("docs/glossary.md, %s: %s", strings.TrimSpace(cells[0]), what)
		}
	}
	if seen < 20 {
		t.Errorf("docs/glossary.md: %d rows say where something is", seen)
	}
}

// TestFilesInPages: every Go file that a page names with its folder exists.
func TestFilesInPages(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range quoted.FindAllStringSubmatch(readDoc(t, page), -1) {
			if !goFile.MatchString(m[1]) || !strings.Contains(m[1], "/") || page == "CHANGELOG.md" {
				continue
			}
			if found, err := filepath.Glob(filepath.Join("../..", m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s: there is no file %s", page, m[1])
			}
		}
	}
}

var word = regexp.MustCompile(`[\w/]+(\.\w+)*`)

// TestModels: the files and names that a model's header gives behind "Code:", and those
// in the model's row of test/models/README.md, are in the tree.
func TestModels(t *testing.T) {
	p := newPlaces(packages(t))
	models, err := filepath.Glob("../../test/models/*.pml")
	if err != nil || len(models) == 0 {
		t.Fatalf("no models: %v", err)
	}
	for _, model := range models {
		name := filepath.Base(model)
		_, header, _ := strings.Cut(readDoc(t, "test/models/"+name), "\n * Code: ")
		header, _, _ = strings.Cut(header, "\n *\n")
		_, row, _ := strings.Cut(readDoc(t, "test/models/README.md"), "\n| "+name+" | ")
		row, _, _ = strings.Cut(row, "\n")
		cells := strings.Split(row, " | ")
		if header == "" || len(cells) != 3 {
			t.Errorf("test/models/%s: no code in its header or in test/models/README.md", name)
			continue
		}
		for _, what := range append(p.check(word.ReplaceAllString(header, "`$0`")), p.check(cells[1])...) {
			t.Errorf("test/models/%s: %s", name, what)
		}
	}
}

func TestPlacesRule(t *testing.T) {
	p := places{
		"conn/ack.go":  {"ackValue": true, "Conn.Ack": true, "Ack": true},
		"conn/send.go": {"pump": true},
		"verbs/mr.go":  {"MR": true, "MR.Allow": true},
	}
	for _, tc := range []struct{ text, want string }{
		{"`conn/ack.go` `ackValue`, `Conn.Ack`; `send.go` `pump`", ""},
		{"in `conn` `pump`, and `verbs.MR.Allow`", ""},
		{"`conn/*.go` `Ack`", ""},
		{"`conn/gone.go`", "there is no file conn/gone.go"},
		{"`verbs/mr.go`; `ack.go`", "there is no file verbs/ack.go"},
		{"`conn/ack.go` `pump`", "pump is not declared in conn/ack.go"},
		{"`pump`", "pump is not declared in "},
		{"`conn.Gone`", "conn.Gone is not declared in "},
		{"`a b`", "a b is neither a file nor a name"},
	} {
		if got := strings.Join(p.check(tc.text), "; "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.text, got, tc.want)
		}
	}
}
