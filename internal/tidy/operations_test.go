package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
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

// declared are the exported names that package rds declares: of the package,
// and methods and fields of its types.
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

// TestOperationsNames: every counter, and every error of package rds, has its
// row with cause and cure; no row is about what there is not.
func TestOperationsNames(t *testing.T) {
	doc := readDoc(t, "docs/operations.md")
	counters := map[string]bool{}
	for c := range stats.NumCounters {
		counters[c.String()] = true
		if !strings.Contains(doc, "| `"+c.String()+"` |") && !(strings.HasPrefix(c.Help(), "Always 0") && strings.Contains(doc, "`"+c.String()+"`")) {
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

// TestKeysInDocs: every key that the documents for operators name exists.
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

// TestMigrationNames: every name of package rds in docs/migration.md exists.
func TestMigrationNames(t *testing.T) {
	names := declared(t)
	doc := readDoc(t, "docs/migration.md")
	for _, m := range regexp.MustCompile("`(?:\\*?rds\\.)?(?:(?:Client|Socket|Message|Region|WaitSet)\\.)?([A-Z][a-zA-Z]*[a-z][a-zA-Z]*)`").FindAllStringSubmatch(doc, -1) {
		if !names[m[1]] {
			t.Errorf("docs/migration.md: package rds has no %s", m[1])
		}
	}
}
