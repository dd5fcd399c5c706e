package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
)

// pods is a cgroup in which this test can make others, and its path from the root.
type pods struct {
	t         *testing.T
	dir, path string
	home      string // cgroup.procs of the root, where this process is between two calls of in
}

// newPods makes a cgroup, of either version. The test is skipped where none can be made.
func newPods(t *testing.T) *pods {
	t.Helper()
	name := fmt.Sprintf("e2e-pods-%d", os.Getpid())
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"} {
		p := &pods{t: t, dir: filepath.Join(mount, name), path: "/" + name, home: filepath.Join(mount, "cgroup.procs")}
		if os.Mkdir(p.dir, 0o755) != nil {
			continue
		}
		t.Cleanup(p.remove) // when the processes that the test starts have ended, wherever they were moved to
		if _, err := os.Stat(filepath.Join(p.dir, "cgroup.procs")); err == nil && p.tryMove(p.home) == nil {
			return p
		}
	}
	t.Skip("no cgroup can be made here")
	return nil
}

// remove removes p and the cgroups below it.
func (p *pods) remove() {
	var dirs []string
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		err = errors.Join(err, os.Remove(dir))
	}
	if err != nil {
		p.t.Errorf("cgroups are left: %v", err)
	}
}

func (p *pods) tryMove(procs string) error {
	return os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0)
}

// in calls f while this process is in a cgroup below p, so that processes which f starts are.
func (p *pods) in(name string, f func()) {
	p.t.Helper()
	dir := filepath.Join(p.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := p.tryMove(filepath.Join(dir, "cgroup.procs")); err != nil {
		p.t.Fatal(err)
	}
	defer func() { // also when f ends the test, or no cgroup could be removed
		if err := p.tryMove(p.home); err != nil {
			p.t.Error(err)
		}
	}()
	f()
}

// TestAccountsByCgroup checks that processes of one user count for their cgroups, each with a
// quota of its own. A process cannot leave its account: neither by another cgroup after it has
// connected, nor by one below its own. The accounts are shown, and a planned restart keeps them.
func TestAccountsByCgroup(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		p := newPods(t)
		h := openToAll(t, withArgs("-quota-sockets", "2", "-quota-accounts", p.path+"/*", "-quota-overrides", "account=pod-b sockets=3"))
		port := uint16(4000)
		bind := func(u *user, want string) string {
			port++
			return u.do("bind "+h.at(port).String(), want)
		}
		start := func(name string) (u *user) {
			p.in(name, func() { u = h.startUser("attached") })
			return u
		}
		a, b, alone := start("pod-a"), start("pod-b"), h.startUser("attached")
		for range 2 {
			bind(a, "bound")
			bind(b, "bound")
			bind(alone, "bound")
		}
		contains(t, "a third socket", bind(a, "ENOBUFS"), "account pod-a has 2", "quota.sockets")
		bind(b, "bound")
		contains(t, "a fourth socket", bind(b, "ENOBUFS"), "account pod-b has 3")
		contains(t, "outside", bind(alone, "ENOBUFS"), fmt.Sprintf("uid %d has 2", nobody))

		contains(t, "a cgroup below", bind(start("pod-a/inner"), "ENOBUFS"), "account pod-a has 2")
		if err := os.WriteFile(filepath.Join(p.dir, "pod-b", "cgroup.procs"), []byte(strconv.Itoa(a.Process.Pid())), 0); err != nil {
			t.Fatal(err)
		}
		contains(t, "another cgroup", bind(a, "ENOBUFS"), "account pod-a has 2")

		users := func() (all []ctl.User) {
			for _, u := range h.status().Users {
				if u.Account != "" {
					all = append(all, u)
				}
			}
			return all
		}
		before := users()
		if len(before) != 2 || before[0].Account != "pod-a" || before[0].Clients.Used != 2 || before[0].Sockets.Used != 2 || before[1].Sockets.Used != 3 || *before[1].Sockets.Quota != 3 {
			t.Errorf("accounts %+v", before)
		}
		contains(t, "rdsctl status", h.rdsctl("status"), "\npod-a ", "\npod-b ")
		contains(t, "rdsctl processes", h.rdsctl("processes", "-columns", "account,sockets"), "pod-a", "pod-b")
		h.upgrade()
		if now := users(); !reflect.DeepEqual(now, before) {
			t.Errorf("after a planned restart %+v, before %+v", now, before)
		}
		contains(t, "after a planned restart", bind(a, "ENOBUFS"), "account pod-a has 2")
		contains(t, "after a planned restart", bind(start("pod-b"), "ENOBUFS"), "account pod-b has 3")
	})
}
