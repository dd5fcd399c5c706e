package preload

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/rdstest"
)

var selftestsDir = flag.String("preload.selftests", os.Getenv("KERNEL_SELFTESTS"), "tools/testing/selftests of Linux's sources (6.11 and later), with net/rds and net/lib; more than one with colons")

// selftests runs f for a file of the kernel's self-tests of RDS in each of selftestsDir.
func selftests(t *testing.T, name string, f func(t *testing.T, path string)) {
	t.Helper()
	each(t, *selftestsDir, "no self-tests: KERNEL_SELFTESTS=DIR make preload-test, with tools/testing/selftests of Linux 6.11 or later", func(t *testing.T, dir string) {
		path := filepath.Join(dir, "net/rds", name)
		if _, err := os.Stat(path); err != nil {
			t.Skip(err)
		}
		version(t, blob(t, path))
		f(t, path)
	})
}

// TestSelftest runs the kernel's test.py, unmodified: a process has sockets of two network namespaces,
// each with a daemon, and sends 50,000 messages between them. testdata/selftest.sh says what it needs.
func TestSelftest(t *testing.T) { selftests(t, "test.py", selftest) }

func selftest(t *testing.T, script string) {
	dir := t.TempDir()
	rdsd := rdsdAsRoot(t, dir, "tc", "sysctl", "tcpdump", "killall", "python3")
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh",
		"testdata/selftest.sh", dir, filepath.Join(built(t, ""), library), rdsd, script, "--logdir", dir, "--timeout", "300")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "FAIL") {
		t.Errorf("%v\n%s", err, out)
		for _, ns := range []string{"net0", "net1"} {
			log, _ := os.ReadFile(filepath.Join(dir, ns+".log"))
			t.Logf("the daemon of %s:\n%s", ns, log)
		}
		return
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(strings.TrimPrefix(line, "# "), "done ") || strings.HasPrefix(line, "selftest.sh:") {
			t.Log(line)
		}
	}
}

// TestSelftestOptions runs the kernel's getsockopt.c, of Linux 7 and later.
func TestSelftestOptions(t *testing.T) { selftests(t, "getsockopt.c", selftestOptions) }

func selftestOptions(t *testing.T, source string) {
	program := filepath.Join(t.TempDir(), "getsockopt")
	if out, err := exec.Command("cc", "-D_GNU_SOURCE", "-o", program, source).CombinedOutput(); err != nil {
		t.Skipf("it does not compile: %v\n%s", err, out)
	}
	d := rdstest.StartDaemons(t, 1)[0]
	if out := finish(t, preloaded(t, d, "", program)); strings.Contains(out, "SKIP") {
		t.Errorf("not all of it ran:\n%s", out)
	}
}
