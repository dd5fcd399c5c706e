package tidy

import (
	"regexp"
	"strings"
	"testing"
)

// reportLink is a link to a report of scripts/bench-figures.sh.
var reportLink = regexp.MustCompile(`performance/\d{4}-\d\d-\d\d-figures\.md`)

// figureTable are the cells of a table in Markdown, by the text of their row and the head of their column.
func figureTable(text string) (cells map[string]map[string]string, lines []string) {
	cells = map[string]map[string]string{}
	var head []string
	for line := range strings.SplitSeq(text, "\n") {
		switch row := strings.Split(strings.Trim(line, "|"), "|"); {
		case !strings.HasPrefix(line, "|") && head != nil:
			return cells, lines
		case !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---"):
		case head == nil:
			head = row
		default:
			lines = append(lines, line)
			of := map[string]string{}
			for i := 1; i < min(len(row), len(head)); i++ {
				of[strings.TrimSpace(head[i])] = strings.TrimSpace(row[i])
			}
			cells[strings.TrimSpace(row[0])] = of
		}
	}
	return cells, lines
}

// TestFigures: the figures of README.md are the medians of the report that it names, with its date,
// commit and machine, and docs/performance.md has the table of that report.
func TestFigures(t *testing.T) {
	_, section, _ := strings.Cut(readDoc(t, "README.md"), "\n## Five figures\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, today, _ := strings.Cut(readDoc(t, "docs/performance.md"), "\n## Today\n")
	today, _, _ = strings.Cut(today, "\n## ")
	name := reportLink.FindString(section)
	if name == "" || reportLink.FindString(today) != name {
		t.Fatalf("README.md names the report %q, docs/performance.md %q", name, reportLink.FindString(today))
	}
	report := readDoc(t, "docs/"+name)
	measured, lines := figureTable(report)
	for _, line := range append(lines, regexp.MustCompile(`(?m)^\d{4}-.*$`).FindString(report)) {
		if !strings.Contains(today, line+"\n") {
			t.Errorf("docs/performance.md, Today, lacks a line of %s:\n%s", name, line)
		}
	}
	of := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d, commit [0-9a-f]+, [^,]+`).FindString(report)
	if of == "" || !strings.Contains(section, of) {
		t.Errorf("README.md does not say date, commit and machine as %s does: %q", name, of)
	}
	shown, rows := figureTable(section)
	if len(rows) != 5 {
		t.Errorf("README.md has %d figures, want 5", len(rows))
	}
	for row, cells := range shown {
		for column, cell := range cells {
			want, ok := measured[row][column]
			if median, _, _ := strings.Cut(want, " ["); !ok || cell != median {
				t.Errorf("README.md, %q of %s: %s, the report has %q", row, column, cell, want)
			}
		}
	}
}
