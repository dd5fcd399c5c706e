package tour

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

const page = "../../docs/tour-developers.md"

var block = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```\n")

// TestPage: every snippet of the tour is code that the Examples run, and what it prints is
// what they print.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("tour_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code := flat(string(source))
	seen := 0
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		kind, snippet := m[1], m[2]
		switch kind {
		case "go":
			if seen++; !strings.Contains(code, "\n"+flat(snippet)) {
				t.Errorf("no Example runs this snippet:\n%s", snippet)
			}
		case "":
			var b strings.Builder
			b.WriteString("// Output:\n")
			for line := range strings.Lines(snippet) {
				b.WriteString("// " + line)
			}
			if !strings.Contains(code, b.String()+"}") {
				t.Errorf("no Example prints this:\n%s", snippet)
			}
		}
	}
	if n := strings.Count(string(source), "\nfunc Example_"); seen < n {
		t.Errorf("%d snippets of %d Examples", seen, n)
	}
}

// flat removes the indentation of all lines.
func flat(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimLeft(line, "\t "))
	}
	return b.String()
}
