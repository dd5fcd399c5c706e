package verbstest

import (
	"os"
	"regexp"
	"testing"
)

// TestDocs: docs/conformance.md names every statement that deviates in all
// providers or does not apply, and no other.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, id := range regexp.MustCompile(`\bA\d+\b`).FindAllString(string(doc), -1) {
		named[id] = true
	}
	for i := range Statements {
		if s := &Statements[i]; named[s.ID] != (s.NA != "" || s.Contract != "") {
			t.Errorf("%s: named %v; not applicable %q, deviation %q", s.ID, named[s.ID], s.NA, s.Contract)
		}
	}
}
