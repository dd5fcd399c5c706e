package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/cli")

// docs/cli agrees with the program.
func TestManualIsUpToDate(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "cli")
	files := manualFiles("md")
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		a := &app{stdout: os.Stdout, stderr: os.Stderr}
		if code := a.run(t.Context(), []string{manualVerb, "md", dir}); code != exitOK {
			t.Fatalf("status %d", code)
		}
	}
	have, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range have {
		if _, ok := files[f.Name()]; !ok {
			t.Errorf("docs/cli/%s is of no verb: go test ./cmd/rdsctl -run Manual -update", f.Name())
		}
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("docs/cli/%s is not what the program says (%v): go test ./cmd/rdsctl -run Manual -update", name, err)
		}
	}
}

// Each page has the usual sections, and man can read it.
func TestManualPages(t *testing.T) {
	groff, groffErr := exec.LookPath("groff")
	for name, text := range manualFiles("man") {
		for _, want := range []string{".TH ", ".SH NAME", ".SH EXAMPLES", ".SH DIAGNOSTICS"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
		if groffErr != nil {
			continue
		}
		cmd := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	for _, want := range []string{"rdsctl.1", "rdsctl-peer-drain.1", "rdsd.8", "rdsd.toml.5", "rdsctl-rds-info.1", "rdsctl-rds-ping.1", "rdsctl-rds-stress.1"} {
		if manualFiles("man")[want] == "" {
			t.Errorf("no page %s", want)
		}
	}
	if text := manualFiles("man")["rdsd.toml.5"]; !strings.Contains(text, "peers.allow") || !strings.Contains(text, "quota.") {
		t.Error("rdsd.toml.5 lacks keys")
	}
	a := &app{stdout: os.Stdout, stderr: new(strings.Builder)}
	if code := a.run(t.Context(), []string{manualVerb, "pdf", t.TempDir()}); code != exitUsage {
		t.Errorf("pdf: status %d", code)
	}
	if code := a.run(t.Context(), []string{manualVerb, "man", filepath.Join(t.TempDir(), "man")}); code != exitOK {
		t.Errorf("man: status %d", code)
	}
}
