package e2e

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/rds"
)

const (
	releaseDaemon = "rdsd-release" // the program of the release
	envRelease    = "E2E_RELEASE"  // a release's tag or commit, instead of the last one
)

// TestUpgradeRelease is TestUpgradeVersion with the daemon of the last release, or of the one that E2E_RELEASE names. That daemon may know
// one path between two hosts. Then it does not take over while there are several, and says why.
func TestUpgradeRelease(t *testing.T) {
	t.Parallel()
	if os.Getenv(envTest) == "" { // else the daemon is there
		if _, err := os.Stat("../../.git"); err != nil {
			t.Run("NoCheckout", func(t *testing.T) { t.Skip("the tree is no git checkout, so there is no release's commit") })
			return
		}
		buildOlder(t, releaseCommit(t), releaseDaemon)
	}
	t.Run("Series", func(t *testing.T) {
		isolated(t, func(t *testing.T) { testUpgradeVersion(t, releaseDaemon, newestIn(t, releaseCommit(t))) })
	})
	t.Run("Paths", func(t *testing.T) {
		isolated(t, func(t *testing.T) {
			if newestIn(t, releaseCommit(t)) < knowsPaths {
				testReleasePaths(t)
			}
		})
	})
}

// knowsPaths is the first version of the state that has paths.
const knowsPaths = 7

// releaseCommit returns the commit of the release. It skips the test where the history does not reach so far.
func releaseCommit(t *testing.T) string {
	t.Helper()
	if name := os.Getenv(envRelease); name != "" {
		return strings.TrimSpace(git(t, "", "rev-parse", name+"^{commit}"))
	}
	commit := strings.TrimSpace(git(t, "", "log", "-1", "--format=%H", "--grep", "^Release v[0-9]"))
	if commit == "" {
		t.Skip("the history does not reach to the last release: git fetch --unshallow")
	}
	return commit
}

// wantsPaths starts a daemon that wants several paths. change sets another configuration, which a planned restart reads.
func wantsPaths(t *testing.T) (h *host, change func(config string)) {
	t.Helper()
	file := t.TempDir() + "/rdsd.toml"
	change = func(config string) {
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change(severalPaths)
	h = newHost(t, withArgs("-config", file))
	h.expected = append(h.expected, "upgrade failed")
	return h, change
}

const severalPaths = "peers.paths = 4\n"

// testReleasePaths has the release's daemon beside those of this tree that want several paths. Where it is a peer there is one path, and
// it takes over and hands over under load. Where there are several it does not take over.
func testReleasePaths(t *testing.T) {
	release, own := []string{"-binary", program(releaseDaemon)}, []string{"-binary", program("rdsd")}
	a, change := wantsPaths(t)
	b := newHost(t, withProgram(releaseDaemon))
	l := startLoad(t, a, b, 20000)
	l.progress(100)
	if n := pathsUp(a); n != 1 {
		t.Errorf("%d paths to the release's daemon, want 1", n)
	}
	p := startProcess(t, nil, program("rdsctl"), "peer", "reset", a.addr().String(), "-path", "0", "-socket", b.sock)
	if code := p.wait(); code != 1 {
		t.Errorf("a reset of one path by the release's daemon: status %d", code)
	}
	contains(t, "rdsctl peer reset -path to the release's daemon", p.log(), "the daemon is older than this rdsctl")
	neverReset(t, a, b)
	a.upgradeFails(release, "peers.paths") // which it does not know
	change("")
	a.upgrade(release...)
	l.progress(100)
	change(severalPaths)
	a.upgrade(own...)
	l.progress(100)
	l.finish()

	c, change := wantsPaths(t)
	d, _ := wantsPaths(t)
	from, to := c.open(), d.open()
	audit := newAudit()
	var socks []*rds.Socket
	var readers sync.WaitGroup
	for n := range uint16(paths) {
		s, r := c.bind(from, 5000+n), d.bind(to, 5000+n)
		readers.Go(func() { _ = audit.take(r) })
		socks = append(socks, s, r)
	}
	send := func() {
		for n := 0; n < len(socks); n += 2 {
			for range 20 {
				if err := audit.send(socks[n], socks[n+1].LocalAddrPort(), make([]byte, 5000)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	send()
	audit.balance(t, socks...)
	if n := pathsUp(c); n != paths {
		t.Errorf("%d paths, want %d", n, paths)
	}
	change("")
	c.upgradeFails(release, "reached by several paths", "restart the daemon instead")
	send()
	c.upgrade(own...)
	send()
	audit.balance(t, socks...)
	for _, s := range socks {
		s.Close()
	}
	readers.Wait()
	audit.all(t, socks...)
}

// pathsUp is how many connections of a host are up.
func pathsUp(h *host) (n int) {
	for _, p := range h.rdsctlJSON("peers").Peers {
		if p.State == "up" {
			n++
		}
	}
	return n
}
