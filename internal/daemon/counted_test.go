package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/stats"
)

// TestCountersAreCounted: every counter is counted somewhere, or its help says
// that it is always 0 and why.
func TestCountersAreCounted(t *testing.T) {
	table, err := os.ReadFile("../stats/counters.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../daemon/*.go")
	if err != nil {
		t.Fatal(err)
	}
	engine, err := filepath.Glob("../engine/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range append(files, engine...) {
		if !strings.HasSuffix(f, "_test.go") {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(b)
		}
	}
	n := 0
	for _, m := range regexp.MustCompile(`(?m)^\t([A-Z]\w+): +\{"([a-z_]+)", +"([^"]*)"\}`).FindAllStringSubmatch(string(table), -1) {
		n++
		used := regexp.MustCompile(`stats\.` + m[1] + `\b`).MatchString(code.String())
		if zero := strings.HasPrefix(m[3], "Always 0"); used == zero {
			t.Errorf("%s: counted: %v, help: %s", m[2], used, m[3])
		}
	}
	if n != int(stats.NumCounters) {
		t.Errorf("%d counters seen of %d", n, stats.NumCounters)
	}
}
