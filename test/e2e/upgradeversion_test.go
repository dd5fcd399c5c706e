package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/rds"
)

// TestUpgradeVersion replaces this daemon by the one of the commit before the last that changed
// the encoding of the state, and that one by this, again and again under traffic of all kinds.
// Applications notice nothing, as in TestUpgrade. Two daemons use the newest version of the
// state that both know.
func TestUpgradeVersion(t *testing.T) {
	t.Parallel()
	if os.Getenv(envTest) == "" { // else the daemon is there
		if _, err := os.Stat("../../.git"); err != nil {
			t.Run("NoCheckout", func(t *testing.T) { t.Skip("the tree is no git checkout, so there is no commit before") })
			return
		}
		buildOlder(t, previousCommit(t), previousDaemon)
	}
	t.Run("Series", func(t *testing.T) {
		isolated(t, func(t *testing.T) { testUpgradeVersion(t, previousDaemon, handover.Newest-1) })
	})
}

// previousDaemon is the program of the daemon before.
const previousDaemon = "rdsd-previous"

// testUpgradeVersion replaces daemons by those of the program older, whose newest version of the state is state, and back.
func testUpgradeVersion(t *testing.T, older string, state uint16) {
	a, b := newHost(t, withProgram(older)), newHost(t)
	instances := []ctl.ID{a.status().Instance, b.status().Instance}
	l := startLoad(t, a, b, 20000)
	here, there := startDeeds(t, a, b), startDeeds(t, b, a) // each host has a region that keeps its key
	series := []struct {
		h       *host
		program string
		state   uint16
	}{
		{a, "rdsd", state},
		{a, older, state},
		{b, older, state},
		{a, "rdsd", state},
		{b, older, state},
		{a, "rdsd", handover.Newest},
		{b, "rdsd", state},
	}
	here.breaks, there.breaks = len(series), len(series)
	for i, s := range series {
		l.progress(uint64(i % 3 * 50))
		u := s.h.upgrade("-binary", program(s.program))
		if u.State != s.state {
			t.Errorf("upgrade %d: version %d of the state was used, want %d", i, u.State, s.state)
		}
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", u.PID)); err != nil || exe != program(s.program) {
			t.Errorf("upgrade %d: %s serves, not %s (%v)", i, exe, s.program, err)
		}
		contains(t, "rdsctl status", s.h.rdsctl("status"), fmt.Sprintf("state version %d", s.state))
	}
	l.progress(100)
	here.finish()
	there.finish()
	l.finish()
	l.audit.all(t, l.socks[0], l.socks[1])
	if l.ops.sums[rds.Unknown] > 0 || l.ops.stale > 0 {
		t.Errorf("statuses %v, %d stale", l.ops.sums, l.ops.stale)
	}
	for i, h := range []*host{a, b} {
		if now := h.status().Instance; now != instances[i] {
			t.Errorf("the instance was %v and is %v", instances[i], now)
		}
	}
	t.Logf("datagrams %+v, operations %v", l.audit.sums(), l.ops.sums)
}

const (
	stateVersions = "internal/handover/doc.go"
	newestIs      = "Newest uint16 = "
)

// buildOlder builds the daemon of a commit as the program name.
func buildOlder(t *testing.T, commit, name string) {
	t.Helper()
	dir := t.TempDir()
	index := "GIT_INDEX_FILE=" + filepath.Join(dir, "index")
	tree := filepath.Join(dir, "tree") + "/"
	git(t, index, "read-tree", commit)
	git(t, index, "checkout-index", "--all", "--prefix="+tree)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", program(name), "./cmd/rdsd")
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the daemon of commit %s: %v: %v\n%s", commit, cmd, err, out)
	}
	t.Logf("%s is the daemon of commit %s", name, commit)
}

// previousCommit returns the last commit with the version before the newest. It skips the test where the history does not
// reach so far.
func previousCommit(t *testing.T) string {
	t.Helper()
	commit := "HEAD"
	if newestIn(t, commit) == handover.Newest { // else this tree changes it
		changed := strings.TrimSpace(git(t, "", "log", "-1", "--format=%H", "-G"+newestIs, "--", stateVersions))
		commit = changed + "^"
		if out, err := exec.Command("git", "rev-parse", "--verify", "--quiet", commit+"^{commit}").CombinedOutput(); err != nil {
			t.Skipf("the history does not reach to the commit before %s: git fetch --unshallow (%v %s)", changed, err, out)
		}
	}
	if v := newestIn(t, commit); v != handover.Newest-1 {
		t.Fatalf("%s writes version %d of the state, and this tree %d: a commit raises it by one", commit, v, handover.Newest)
	}
	return strings.TrimSpace(git(t, "", "rev-parse", commit))
}

// newestIn returns the newest version of the state that the daemon of a commit knows.
func newestIn(t *testing.T, commit string) uint16 {
	t.Helper()
	found := regexp.MustCompile(newestIs + `(\d+)`).FindStringSubmatch(git(t, "", "show", commit+":"+stateVersions))
	if found == nil {
		t.Fatalf("%s in commit %s has no %q", stateVersions, commit, newestIs)
	}
	v, err := strconv.ParseUint(found[1], 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(v)
}

// git runs git in the root of the tree and returns what it prints.
func git(t *testing.T, env string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.Output()
	if err != nil {
		text := ""
		if exit, ok := err.(*exec.ExitError); ok {
			text = string(exit.Stderr)
		}
		t.Fatalf("%v: %v\n%s", cmd, err, text)
	}
	return string(out)
}
