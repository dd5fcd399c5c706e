package tidy

import (
	"fmt"
	"slices"
	"strings"
)

// row is a row of the package table in docs/architecture.md.
type row struct {
	pkgs   []string // patterns: a path, or a path/*
	may    []string // patterns; nil for none
	below  bool     // may import everything below the row
	except []string
}

// parseTable reads the table whose header starts with "| package |".
func parseTable(doc string) (rows []row, err error) {
	in := false
	for line := range strings.SplitSeq(doc, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		switch {
		case strings.HasPrefix(line, "| package |"):
			in = true
		case !in || strings.HasPrefix(line, "|---"):
		case !strings.HasPrefix(line, "|"):
			return rows, nil
		case len(cells) != 3:
			return nil, fmt.Errorf("%d cells in %q", len(cells), line)
		default:
			rows = append(rows, parseRow(cells[0], strings.TrimSpace(cells[2])))
		}
	}
	if !in {
		return nil, fmt.Errorf("no package table")
	}
	return rows, nil
}

func parseRow(pkgs, may string) row {
	r := row{pkgs: list(pkgs)}
	if rest, ok := strings.CutPrefix(may, "all below except "); ok {
		r.below, r.except = true, list(rest)
	} else if may == "anything below" {
		r.below = true
	} else if may != "-" {
		r.may = list(may)
	}
	return r
}

func list(cell string) (l []string) {
	for s := range strings.SplitSeq(cell, ",") {
		l = append(l, strings.Trim(strings.TrimSpace(s), "`"))
	}
	return l
}

// matches reports whether pkg is one of patterns.
func matches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if dir, ok := strings.CutSuffix(p, "/*"); ok {
			return strings.HasPrefix(pkg, dir+"/")
		}
		return p == pkg
	})
}

// find returns the index of pkg's row, or -1 if it has none. It is the row with pkg's name,
// else the first with a pattern that matches.
func find(rows []row, pkg string) int {
	if i := slices.IndexFunc(rows, func(r row) bool { return slices.Contains(r.pkgs, pkg) }); i >= 0 {
		return i
	}
	return slices.IndexFunc(rows, func(r row) bool { return matches(r.pkgs, pkg) })
}

// checkImport returns what is wrong if pkg imports dep, both of this module. It returns ""
// if nothing is.
func checkImport(rows []row, pkg, dep string) string {
	from, to := find(rows, pkg), find(rows, dep)
	if from < 0 || to < 0 {
		return "" // reported by checkListed
	}
	r := rows[from]
	ok := matches(r.may, dep)
	if r.below {
		ok = to > from && !matches(r.except, dep)
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("%s: imports: must not import %s (table in docs/architecture.md)", pkg, dep)
}

// checkListed reports a package that is not in the table.
func checkListed(rows []row, pkg string) string {
	if find(rows, pkg) >= 0 {
		return ""
	}
	return fmt.Sprintf("%s: imports: not in the table of docs/architecture.md: add its row", pkg)
}
