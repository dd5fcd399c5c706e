package librds

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestOneUnlock: rx.mu is released in one place, which publishes the receive ids that were given back. Whoever takes
// events may have given some back.
func TestOneUnlock(t *testing.T) {
	files, err := filepath.Glob("src/*.c")
	if err != nil {
		t.Fatal(err)
	}
	n, unlock := 0, regexp.MustCompile(`pthread_mutex_unlock\(&.*\b(rx\.|r->)mu\)`)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		n += len(unlock.FindAll(b, -1))
	}
	if n != 1 {
		t.Errorf("%d places", n)
	}
}
