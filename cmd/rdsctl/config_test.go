package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rdsd.toml")
	if err := os.WriteFile(file, []byte("port = 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := runApp(t, nil, "config", "validate", file); code != exitOK || stdout != "valid: "+file+"\n" || stderr != "" {
		t.Errorf("status %d, %q, %q", code, stdout, stderr)
	}
	if err := os.WriteFile(file, []byte("listen = [\"10.0.0.1\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runApp(t, nil, "config", "validate", file); code != exitFailed || !strings.Contains(stderr, "peers.allow is empty") {
		t.Errorf("status %d, %q", code, stderr)
	}
	if code, _, stderr := runApp(t, nil, "config", "validate", file+"x"); code != exitNotFound || !strings.Contains(stderr, "no such file") {
		t.Errorf("status %d, %q", code, stderr)
	}
	for _, args := range [][]string{{"config", "validate"}, {"config", "show", "x"}, {"config"}, {"config", "set"}} {
		if code, _, stderr := runApp(t, nil, args...); code != exitUsage || !strings.Contains(stderr, "config") {
			t.Errorf("%v: status %d, %q", args, code, stderr)
		}
	}
	code, doc, _ := runApp(t, nil, "config", "docs")
	if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, _, stderr := runApp(t, nil, "config", "validate", file); code != exitOK || again != exitOK {
		t.Errorf("its own documentation is not valid: %s", stderr)
	}
	if _, stdout, _ := runApp(t, direct{&backend{same: true}, true}, "config", "diff"); stdout != "the daemon runs with what its sources say\n" {
		t.Errorf("no difference: %q", stdout)
	}
}
