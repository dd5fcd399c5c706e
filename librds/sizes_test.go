package librds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxFile     = 400 // lines
	maxFunction = 70
)

// TestSizes: the C files are as short as the Go files, and so are their functions.
func TestSizes(t *testing.T) {
	var files []string
	for _, pattern := range []string{"src/*.[ch]", "tests/*.[ch]", "include/rds/*.h"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, found...)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		if len(lines) > maxFile+1 && !strings.Contains(lines[0], "Code generated") {
			t.Errorf("%s: %d lines, at most %d: split it by ideas", f, len(lines)-1, maxFile)
		}
		begin := 0
		for i, l := range lines {
			switch {
			case l == "{":
				begin = i
			case l == "}" && begin > 0 && i-begin-1 > maxFunction:
				t.Errorf("%s:%d: a function of %d lines, at most %d", f, begin, i-begin-1, maxFunction)
			}
		}
	}
}
