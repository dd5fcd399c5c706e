package daemon

import (
	"os"
	"strings"
	"testing"
)

// TestFilesWarning: descriptors are told of when a tenth of them is left.
func TestFilesWarning(t *testing.T) {
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := uint64(f.Fd())
	if s := filesWarning(2 * (n + 10)); s != "" {
		t.Errorf("half are in use: %q", s)
	}
	// What other tests have left may close a descriptor below n meanwhile, but none of the first half.
	if s := filesWarning(n/2 + 1); !strings.Contains(s, "descriptors are in use") || !strings.Contains(s, "LimitNOFILE") {
		t.Errorf("more than the limit are in use: %q", s)
	}
}
