package preload

import (
	"crypto/sha1"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var ltpDir = flag.String("preload.ltp", os.Getenv("LTP"), "directory with programs of the Linux Test Project that know RDS, as recvmsg03")

// version logs what a judge says of its version.
func version(t *testing.T, said string) {
	t.Helper()
	t.Logf("version: %s", strings.ReplaceAll(strings.TrimSpace(said), "\n", ", "))
}

// blob is the name that git has for a file's content.
func blob(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s, git blob %.10x", filepath.Base(path), sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(b), b)))
}

// each runs f for each folder of a list with colons, as PATH has, and skips the test if there is none.
func each(t *testing.T, list, none string, f func(t *testing.T, dir string)) {
	t.Helper()
	if list == "" {
		t.Skip(none)
	}
	for _, dir := range filepath.SplitList(list) {
		t.Run(filepath.Base(dir), func(t *testing.T) { f(t, dir) })
	}
}

// rdsdAsRoot builds rdsd in dir, for a test that runs it in namespaces of its own.
func rdsdAsRoot(t *testing.T, dir string, programs ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, program := range append(programs, "unshare", "ip") {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	rdsd := filepath.Join(dir, "rdsd")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", rdsd, "github.com/rdsd/rdsd/cmd/rdsd").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return rdsd
}

// alone runs a shell command as testdata/alone.sh says, and returns its output.
func alone(t *testing.T, command string, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	rdsd := rdsdAsRoot(t, dir, programs...)
	out, err := exec.CommandContext(t.Context(), "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh",
		"testdata/alone.sh", dir, filepath.Join(built(t, ""), library), rdsd, command).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// TestQperf runs qperf's tests of RDS. For each, its server tells its client a TCP port before it
// listens there (server_get_hosts of qperf's rds.c), so the client may find it refused and has to be
// started again.
func TestQperf(t *testing.T) {
	out := alone(t, `qperf --version
qperf &
for test in rds_lat rds_bw; do
	tries=0
	until out=$(qperf 127.0.0.1 -t 1 -m 8192 $test 2>&1); do
		tries=$((tries + 1))
		case "$tries $out" in 100*) echo "$out"; exit 1;; *"Connection refused"*) ;; *) echo "$out"; exit 1;; esac
	done
	echo "$out"
done`, "qperf")
	if !strings.Contains(out, "latency") || !strings.Contains(out, "bw  =") {
		t.Errorf("output:\n%s", out)
	}
	said, out, _ := strings.Cut(out, "\n")
	version(t, said)
	t.Log(out)
}

// ltpVersion is what LTP's programs say of it.
var ltpVersion = regexp.MustCompile(`LTP version: .*`)

// TestLTP runs the programs of the Linux Test Project in LTP=DIR. They look for the kernel's RDS in its configuration,
// unless they are told not to.
func TestLTP(t *testing.T) {
	if *ltpDir == "" {
		t.Skip("no LTP: LTP=DIR make afrds-judges, with recvmsg03 built in DIR")
	}
	programs, err := filepath.Glob(filepath.Join(*ltpDir, "*"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("no programs in %s: %v", *ltpDir, err)
	}
	for _, program := range programs {
		t.Run(filepath.Base(program), func(t *testing.T) {
			out := alone(t, "KCONFIG_SKIP_CHECK=1 "+program)
			version(t, ltpVersion.FindString(out))
			if !strings.Contains(out, "TPASS") || strings.Contains(out, "TFAIL") {
				t.Errorf("output:\n%s", out)
			}
		})
	}
}
