package main

import (
	"strings"
	"testing"
)

// The first word of verbs of two words has a help of its own.
func TestHelpOfFamily(t *testing.T) {
	for word, names := range map[string][]string{"daemon": {"daemon drain", "daemon resume", "daemon upgrade"}, "peer": {"peer reset", "peer drain", "peer resume"},
		"config": {"config show", "config diff", "config reload", "config validate", "config docs"}} {
		for _, args := range [][]string{{"help", word}, {word, "-h"}, {word, "--help"}, {"-timeout", "1s", word, "-help"}} {
			code, stdout, stderr := runApp(t, nil, args...)
			if code != exitOK || stderr != "" || !strings.HasPrefix(stdout, "usage: rdsctl "+word+" VERB") {
				t.Errorf("%v: status %d, %q, %q", args, code, stdout, stderr)
			}
			if n := strings.Count(stdout, "\n  "+word+" "); n != len(names) {
				t.Errorf("%v: %d verbs\n%s", args, n, stdout)
			}
			for _, name := range names {
				if !strings.Contains(stdout, "  "+name) {
					t.Errorf("%v does not tell about %s", args, name)
				}
			}
		}
	}
	for _, args := range [][]string{{"help", "daemon", "x"}, {"help", "xyzzy"}, {"daemon", "x", "--help"}, {"xyzzy", "--help"}} {
		if code, stdout, stderr := runApp(t, nil, args...); code != exitUsage || stdout != "" || stderr == "" {
			t.Errorf("%v: status %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if _, stdout, _ := runApp(t, nil, "trace", "--help"); !strings.HasPrefix(stdout, "usage: rdsctl trace ADDR") && !strings.HasPrefix(stdout, "usage: rdsctl trace [") {
		t.Errorf("trace is a verb itself: %q", stdout)
	}
}
