package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPages: each function that the headers declare has a page that begins with what the
// function does, and man can show it.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	if err := writePages("../include/rds", dir); err != nil {
		t.Fatal(err)
	}
	headers, err := filepath.Glob("../include/rds/*.h")
	if err != nil || len(headers) == 0 {
		t.Fatal(headers, err)
	}
	for _, h := range headers {
		text, err := os.ReadFile(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^RDS_API [^;]*?\b(rds_\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			path := filepath.Join(dir, m[1]+".3")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Errorf("%s has no comment right before it: %v", m[1], err)
				continue
			}
			if !strings.Contains(string(b), ".SH NAME\n"+m[1]+" \\- ") || strings.Contains(string(b), ".SH DESCRIPTION\n.SH") {
				t.Errorf("%s: the page says nothing:\n%s", m[1], b)
			}
			check(t, path)
		}
	}
	check(t, "../man/librds.7")
}

// check fails the test if groff, where there is one, complains.
func check(t *testing.T, path string) {
	t.Helper()
	if _, err := exec.LookPath("groff"); err != nil {
		return
	}
	out, err := exec.Command("groff", "-man", "-Tutf8", "-ww", "-z", path).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%s: %v %s", path, err, out)
	}
}
