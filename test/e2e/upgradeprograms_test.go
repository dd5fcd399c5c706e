package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/rds"
)

// TestUpgradeToStrangers upgrades to programs that speak the protocol of a hand-over and do
// something wrong in each of its steps, or nothing until the limits act. The daemon must end them
// and go on, and hand over to a real one afterwards.
func TestUpgradeToStrangers(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(map[bool]string{false: "wrong", true: "silent"}[silent], func(t *testing.T) {
			isolated(t, func(t *testing.T) { testUpgradeToStrangers(t, silent) })
		})
	}
}

func testUpgradeToStrangers(t *testing.T, silent bool) {
	options := []option{withProgram("rdsd-failpoints")}
	if silent {
		options = append(options, hurried())
	}
	here, there := newHost(t, options...), newHost(t)
	here.expected = []string{"upgrade failed"}
	b := startBystanders(t, here, there)
	dir := t.TempDir()
	for _, s := range speakerSteps {
		if silent != slices.Contains(s.says, "i/o timeout") {
			continue
		}
		path := script(t, dir, "stranger", fmt.Sprintf("%s=%q exec %s -- \"$@\"", envRole, roleSpeaker+s.name, os.Args[0]))
		here.upgradeFails([]string{"-binary", path}, s.says...)
		if t.Failed() {
			t.Fatalf("%s: see above", s.name)
		}
	}
	b.progress()
	if !silent {
		here.upgrade(plainSuccessor()...)
		b.progress()
	}
	b.finish()
}

// TestSuccessorEndsAtOnce upgrades to a program that ends when it has taken over. Nobody serves
// then, as after a crash: clients learn of it, and the old daemon ends with status 1, so that a
// supervisor starts the service again.
func TestSuccessorEndsAtOnce(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here := newHost(t)
		c := here.open()
		p := here.upgrading("-binary", script(t, t.TempDir(), "stranger", fmt.Sprintf("%s=%q exec %s -- \"$@\"", envRole, roleSpeaker+takesAndEnds, os.Args[0])))
		<-c.Done()
		if err := c.Err(); !errors.Is(err, rds.ErrDaemonGone) {
			t.Errorf("client: %v", err)
		}
		if code := here.process.wait(); code != 1 {
			t.Errorf("the daemon ended with status %d", code)
		}
		contains(t, "the log", here.log(), "it has taken over and ended since")
		here.Kill()
		here.start()
		here.open()
		if code := p.wait(); code != 1 {
			t.Errorf("rdsctl: status %d, %s", code, p.log())
		}
	})
}

// script makes a program that says that it is rdsd, and else does what text says.
func script(t *testing.T, dir, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	text = "#!/bin/sh\n[ \"$1\" = -version ] && exec echo rdsd of another kind\n" + text + "\n"
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUpgradeToNoDaemon upgrades to what is no program of a daemon. Nothing may be started.
func TestUpgradeToNoDaemon(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here, there := newHost(t, hurried()), newHost(t)
		here.expected = []string{"upgrade failed"}
		b := startBystanders(t, here, there)
		dir := t.TempDir()
		open := script(t, dir, "open", "")
		if err := os.Chmod(open, 0o777); err != nil {
			t.Fatal(err)
		}
		hangs := filepath.Join(dir, "hangs")
		if err := os.WriteFile(hangs, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		data := script(t, dir, "data", "")
		if err := os.Chmod(data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ path, says string }{
			{"/bin/true", "-version does not say that it is rdsd"},
			{"/bin/false", "exit status 1"},
			{open, "others may write it"},
			{hangs, "signal: killed"},
			{data, "not an executable file"},
			{dir, "not an executable file"},
			{dir + "/none", "no such file"},
			{script(t, here.dir, "inside", ""), "which the daemon may write"},
		} {
			p := here.upgrading("-binary", c.path)
			if code := p.wait(); code != 1 {
				t.Errorf("%s: status %d", c.path, code)
			}
			contains(t, c.path, p.log(), "starter: refused", c.says, "goes on")
			here.alone()
		}
		if err := os.Remove(here.dir + "/inside"); err != nil {
			t.Fatal(err)
		}
		here.upgradeFails([]string{"-binary", program("rdsctl")}, "does not say that it is rdsd")
		b.progress()
		b.finish()
	})
}
