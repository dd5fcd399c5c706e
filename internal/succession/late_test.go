package succession

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLateAnswer: a starter that answers after the daemon has given the request up. Its
// answers are not taken for those of later requests, and what it started late is killed.
func TestLateAnswer(t *testing.T) {
	t.Setenv(roleEnv, "late")
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// It says its version when somebody opens the fifo, and lives on with the descriptor
	// of the connection open.
	slow := script("slow", fmt.Sprintf("[ \"$1\" = -version ] && { read x < %s; echo rdsd v2; exit; }\nexec sleep 1000\n", fifo))
	ended := script("ended", "[ \"$1\" = -version ] && { echo rdsd v3; exit; }\nexit 7\n")
	other := script("other", "echo nginx\n")

	st, err := NewStarter([]string{"/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	part := st.part
	for _, next := range []struct{ program, says string }{{ended, "exit status 7"}, {other, "does not say that it is rdsd"}} {
		old, theirs, err := NewPair()
		if err != nil {
			t.Fatal(err)
		}
		st.part = time.Millisecond
		if _, err := st.Start(slow, theirs); err == nil {
			t.Fatal("started, and was to be late")
		}
		theirs.Close()
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.Close()

		st.part = part
		l, theirs, err := NewPair()
		if err != nil {
			t.Fatal(err)
		}
		_, err = st.Start(next.program, theirs)
		theirs.Close()
		got := fmt.Sprint(err)
		if err == nil {
			_, err = l.next() // the successor has ended
			got, _ = st.Kill(false)
		}
		if !strings.Contains(got, next.says) {
			t.Errorf("%s: %s, %v; want %q", next.program, got, err, next.says)
		}
		l.Close()
		old.limit(2 * time.Minute)
		if _, err := old.next(); err == nil || !strings.Contains(err.Error(), ErrGone.Error()) {
			t.Errorf("the late successor lives: %v", err)
		}
		old.Close()
	}
}
