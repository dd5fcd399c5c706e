package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages returns the Markdown pages of the tree's top, docs, docs/adr, docs/performance and models,
// by their paths from the top.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "docs/performance/*.md", "test/models/*.md"} {
		names, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			all = append(all, strings.TrimPrefix(name, "../../"))
		}
	}
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notWord = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names by which links refer to a page's headings.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		found[strings.ReplaceAll(notWord.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

// TestLinks: each link of a page to a file of the tree, or to a heading of it, leads to one
// that exists.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(readDoc(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			info, err := os.Stat(filepath.Join("../..", target))
			if err != nil {
				t.Errorf("%s: the link %q leads nowhere", page, m[1])
				continue
			}
			if anchor != "" && (info.IsDir() || !anchors(readDoc(t, target))[anchor]) {
				t.Errorf("%s: %s has no heading %q", page, target, anchor)
			}
		}
	}
}

// TestTables: no empty line cuts a table in two, of which the second part would be shown as text.
func TestTables(t *testing.T) {
	rule := regexp.MustCompile(`^[|: -]+$`)
	for _, page := range pages(t) {
		lines := append(strings.Split(readDoc(t, page), "\n"), "")
		for i := 1; i < len(lines)-1; i++ {
			if lines[i-1] == "" && strings.HasPrefix(lines[i], "|") && !rule.MatchString(lines[i+1]) {
				t.Errorf("%s:%d: a row without a table: %q", page, i+1, lines[i])
			}
		}
	}
}

// TestIndex: docs/README.md leads to every page of docs, docs/adr/README.md to
// every decision, docs/performance.md to every measurement, and each decision's title has the number of its file.
func TestIndex(t *testing.T) {
	indices := map[string]string{"docs": readDoc(t, "docs/README.md"), "docs/adr": readDoc(t, "docs/adr/README.md"),
		"docs/performance": strings.ReplaceAll(readDoc(t, "docs/performance.md"), "(performance/", "(")}
	number := regexp.MustCompile(`^0*(\d+)-`)
	for _, page := range pages(t) {
		dir, name := filepath.Split(page)
		index, ok := indices[strings.TrimSuffix(dir, "/")]
		if !ok || name == "README.md" {
			continue
		}
		if !strings.Contains(index, "("+name+")") {
			t.Errorf("%sREADME.md: no link to %s", dir, name)
		}
		if dir != "docs/adr/" {
			continue
		}
		m := number.FindStringSubmatch(name)
		if m == nil || !strings.HasPrefix(readDoc(t, page), "# "+m[1]+". ") {
			t.Errorf("%s: the title does not begin with the number of the file", page)
		}
	}
}

// TestReadmeLength: the README is short enough to read at once.
func TestReadmeLength(t *testing.T) {
	if n := strings.Count(readDoc(t, "README.md"), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, want at most 150", n)
	}
}

// TestPerformanceLength: docs/performance.md is short enough to answer; what was measured before is in
// docs/performance.
func TestPerformanceLength(t *testing.T) {
	if n := len(strings.Fields(readDoc(t, "docs/performance.md"))); n > 2500 {
		t.Errorf("docs/performance.md has %d words, want at most 2500", n)
	}
}
