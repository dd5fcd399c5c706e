package tidy

import (
	"regexp"
	"strings"
	"testing"
)

// figureTable are the cells of a table in Markdown, by the text of their row and the head of their column.
func figureTable(text string) map[string]map[string]string {
	cells := map[string]map[string]string{}
	var head []string
	for line := range strings.SplitSeq(text, "\n") {
		switch row := strings.Split(strings.Trim(line, "|"), "|"); {
		case !strings.HasPrefix(line, "|") && head != nil:
			return cells
		case !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---"):
		case head == nil:
			head = row
		default:
			of := map[string]string{}
			for i := 1; i < min(len(row), len(head)); i++ {
				of[strings.TrimSpace(head[i])] = strings.TrimSpace(row[i])
			}
			cells[strings.TrimSpace(row[0])] = of
		}
	}
	return cells
}

// TestFigures: the figures of README.md are the medians of docs/performance.md, Today, with its date, commit and machine.
func TestFigures(t *testing.T) {
	_, section, _ := strings.Cut(readDoc(t, "README.md"), "\n## Five figures\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, today, _ := strings.Cut(readDoc(t, "docs/performance.md"), "\n## Today\n")
	today, _, _ = strings.Cut(today, "\n## ")
	measured := figureTable(today)
	of := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d, commit [0-9a-f]+, [^,]+`).FindString(today)
	if of == "" || !strings.Contains(section, of) {
		t.Errorf("README.md does not say date, commit and machine as docs/performance.md does: %q", of)
	}
	shown := figureTable(section)
	if len(shown) != 5 {
		t.Errorf("README.md has %d figures, want 5", len(shown))
	}
	for row, cells := range shown {
		for column, cell := range cells {
			want, ok := measured[row][column]
			if median, _, _ := strings.Cut(want, " ["); !ok || cell != median {
				t.Errorf("README.md, %q of %s: %s, docs/performance.md has %q", row, column, cell, want)
			}
		}
	}
}
