package tidy

import (
	"go/ast"
	"go/doc"
	"go/token"
	"strings"
)

// checkExample takes all files of one public package.
func checkExample(files []*file) []string {
	var tests []*ast.File
	for _, f := range files {
		if f.test() {
			tests = append(tests, f.ast)
		}
	}
	for _, e := range doc.Examples(tests...) {
		if e.Output != "" {
			return nil
		}
	}
	return []string{files[0].find(files[0].ast.Package, "example", "package %s has none with output: a reader starts from one", files[0].pkg())}
}

// checkDocs takes the non-test files of one public package.
func checkDocs(files []*file) (found []string) {
	documented := map[string]bool{} // types with a comment; their enumerations need none
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				for _, s := range g.Specs {
					t := s.(*ast.TypeSpec)
					documented[t.Name.Name] = t.Doc != nil || t.Comment != nil || g.Doc != nil
				}
			}
		}
	}
	for _, f := range files {
		missing := func(id *ast.Ident) {
			found = append(found, f.find(id.Pos(), "doc comment", "%s has none", id.Name))
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) && !wellKnown(d) {
					missing(d.Name)
				}
			case *ast.GenDecl:
				undocumented(d, documented, missing)
			}
		}
	}
	return found
}

// undocumented calls missing for each exported name of d without a comment. The comment may
// be the name's, the group's, or that of the enumeration's type.
func undocumented(d *ast.GenDecl, documented map[string]bool, missing func(*ast.Ident)) {
	typ := "" // type of an enumeration: a constant without a type has that of the one before
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && !documented[s.Name.Name] {
				missing(s.Name)
			}
		case *ast.ValueSpec:
			if id, ok := s.Type.(*ast.Ident); ok {
				typ = id.Name
			} else if len(s.Values) > 0 {
				typ = ""
			}
			if d.Doc != nil || s.Doc != nil || s.Comment != nil || documented[typ] {
				continue
			}
			for _, id := range s.Names {
				if id.IsExported() {
					missing(id)
				}
			}
		}
	}
}

// exportedReceiver reports whether d is a function, or a method of an exported
// type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	return ast.IsExported(receiverType(d))
}

// wellKnown reports whether d is a method whose interface documents it.
func wellKnown(d *ast.FuncDecl) bool {
	if d.Recv == nil || d.Type.Params.NumFields() != 0 || d.Type.Results.NumFields() != 1 {
		return false
	}
	return strings.Contains(" String Error Unwrap ", " "+d.Name.Name+" ")
}
