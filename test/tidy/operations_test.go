package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/stats"
)

func readDoc(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// declared is the exported names that package rds declares, methods and fields of its types
// included.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob("../../rds/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				names[fn.Name.Name] = true
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					names[n.Name.Name] = true
				case *ast.ValueSpec:
					for _, id := range n.Names {
						names[id.Name] = true
					}
					return false
				case *ast.Field:
					for _, id := range n.Names {
						names[id.Name] = true
					}
				}
				return true
			})
		}
	}
	return names
}

// TestOperationsNames: each counter and each error of package rds has a row with cause and
// cure, or the counter is among those that move with traffic, or are always 0. Each row is about one that exists.
func TestOperationsNames(t *testing.T) {
	doc := readDoc(t, "docs/operations.md")
	_, traffic, _ := strings.Cut(doc, "\nThese move with traffic")
	traffic, _, _ = strings.Cut(traffic, "\n")
	counters := map[string]bool{}
	for c := range stats.NumCounters {
		counters[c.String()] = true
		named := strings.Contains(traffic, "`"+c.String()+"`") || strings.HasPrefix(c.Help(), "Always 0") && strings.Contains(doc, "`"+c.String()+"`")
		if !named && !strings.Contains(doc, "| `"+c.String()+"` |") {
			t.Errorf("docs/operations.md: no row for the counter %v", c)
		}
	}
	_, table, _ := strings.Cut(doc, "\n## Counters\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		if !counters[m[1]] {
			t.Errorf("docs/operations.md: no counter is named %s", m[1])
		}
	}
	for name := range declared(t) {
		if regexp.MustCompile(`^Err[A-Z]`).MatchString(name) && !strings.Contains(doc, "| `"+name+"` |") {
			t.Errorf("docs/operations.md: no row for rds.%s", name)
		}
	}
}

// eventText is the text at the beginning of an event's expression: a constant, a sum or a
// format.
func eventText(x ast.Expr, consts map[string]ast.Expr) string {
	switch x := x.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(x.Value)
		if err != nil {
			return ""
		}
		s, _, _ = strings.Cut(s, "%")
		return strings.TrimRight(s, ": ")
	case *ast.BinaryExpr:
		return eventText(x.X, consts)
	case *ast.Ident:
		if c := consts[x.Name]; c != nil {
			return eventText(c, consts)
		}
	case *ast.CallExpr: // fmt.Sprintf
		if len(x.Args) > 1 {
			return eventText(x.Args[0], consts)
		}
	}
	return ""
}

// TestEventNames: each event that the daemon reports has a row with cause and cure.
func TestEventNames(t *testing.T) {
	doc := readDoc(t, "docs/operations.md")
	consts := map[string]ast.Expr{}
	var files []*ast.File
	for _, dir := range []string{"../../internal/daemon/*.go", "../../internal/engine/*.go", "../../conn/*.go"} {
		names, err := filepath.Glob(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
			ast.Inspect(f, func(n ast.Node) bool {
				if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
					for i, id := range v.Names {
						consts[id.Name] = v.Values[i]
					}
				}
				return true
			})
		}
	}
	// The argument of each function that has the event, counted from the last argument. An
	// event that a caller passes on is no text and is skipped.
	at := map[string]int{"Trace": -2, "trace": -2, "warn": 0, "write": 3}
	found := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			i, ok := at[sel.Sel.Name]
			if i < 0 {
				i += len(call.Args)
			}
			if !ok || i < 0 || i >= len(call.Args) {
				return true
			}
			if text := eventText(call.Args[i], consts); text != "" {
				found[text] = true
			}
			return true
		})
	}
	for text := range found {
		if !strings.Contains(doc, "`"+text+"`") {
			t.Errorf("docs/operations.md: no row for the event %q", text)
		}
	}
	if len(found) < 15 {
		t.Errorf("only %d events were found: %v", len(found), found)
	}
}

// TestKeysInDocs: each key that the documents for operators name exists.
func TestKeysInDocs(t *testing.T) {
	keys := map[string]bool{}
	for _, k := range config.Keys() {
		keys[k.Name] = true
	}
	pattern := regexp.MustCompile("`((?:limits|quota|tls|peers|tcp|bind|metrics|log)\\.[a-z_]+)`")
	for _, name := range []string{"docs/operations.md", "docs/migration.md", "docs/admission.md", "docs/interop.md", "README.md", "SECURITY.md"} {
		for _, m := range pattern.FindAllStringSubmatch(readDoc(t, name), -1) {
			if !keys[m[1]] && !strings.HasPrefix(m[1], "tcp.rds_tcp_") { // a sysctl
				t.Errorf("%s: there is no key %s", name, m[1])
			}
		}
	}
}

// TestMigrationNames: each name of package rds in docs/migration.md exists.
func TestMigrationNames(t *testing.T) {
	names := declared(t)
	doc := readDoc(t, "docs/migration.md")
	for _, m := range regexp.MustCompile("`(?:\\*?rds\\.)?(?:(?:Client|Socket|Message|Region|WaitSet)\\.)?([A-Z][a-zA-Z]*[a-z][a-zA-Z]*)`").FindAllStringSubmatch(doc, -1) {
		if !names[m[1]] {
			t.Errorf("docs/migration.md: package rds has no %s", m[1])
		}
	}
}
