package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/rds"
	"golang.org/x/sys/unix"
)

// node is a machine whose daemons run in containers, one after the other: each in mount and pid
// namespaces and a root folder of its own, where it is process 1. They share the run folder and
// the network. The daemons of before have no part in that a new one starts.
type node struct {
	*host // the part of it that programs see
	env   []string
	now   *container // serves
	all   []*child.Process
}

type container struct {
	t *testing.T
	*child.Process
	kill func(signal string) // sends TERM, KILL or another signal to process 1 of it
}

// newNode starts the first container, with the command line of all: nothing runs that it could
// take over from.
func newNode(t *testing.T, args ...string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := newAddress(t)
	n := &node{host: &host{t: t, dir: dir, sock: dir + "/s", addrs: []netip.Addr{a}, args: args}}
	t.Cleanup(func() {
		for _, p := range n.all {
			p.Kill()
		}
	})
	n.now = n.container()
	n.now.saw("starts as usual")
	n.now.saw("msg=serving")
	t.Cleanup(n.finish)
	return n
}

// container starts a daemon in a container, as process 1.
func (n *node) container(more ...string) *container {
	return n.containerOf(&syscall.SysProcAttr{}, more...)
}

func (n *node) containerOf(as *syscall.SysProcAttr, more ...string) *container {
	n.t.Helper()
	root := n.t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		n.t.Fatal(err)
	}
	// The root is a file system of its own, so that no path leads out of it.
	const setup = `set -e
mount -t tmpfs -o mode=0755 none "$0" && cd "$0" && mkdir -p proc dev bin ".$1"
mount -t proc proc proc && mount --bind "$1" ".$1" && cp "$2" bin/rdsd
dir=$0; shift 2
exec chroot "$dir" /bin/rdsd "$@"`
	args := append([]string{"-take-over", "-socket", n.sock, "-listen", n.addr().String()}, n.args...)
	cmd := exec.Command("sh", append([]string{"-c", setup, root, n.dir, program("rdsd-failpoints")}, append(args, more...)...)...)
	cmd.Env = child.Env(n.env...)
	as.Cloneflags |= syscall.CLONE_NEWPID
	as.Unshareflags |= syscall.CLONE_NEWNS
	cmd.SysProcAttr = as
	p, err := child.Start(cmd)
	if errors.Is(err, unix.EPERM) {
		n.t.Skipf("pid namespaces are not permitted here: %v", err)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.all = append(n.all, p)
	return &container{n.t, p, func(signal string) { p.Signal(unix.SignalNum("SIG" + signal)) }}
}

func (c *container) saw(text string) {
	c.t.Helper()
	if !c.Until(patience, func() bool { return c.Stderr.Has(text) }) {
		c.t.Fatalf("no %q:\n%s", text, &c.Stderr)
	}
}

// ends waits for the end of the container.
func (c *container) ends(code int) {
	c.t.Helper()
	if !c.Wait(patience) || c.Code() != code {
		c.t.Fatalf("ended: %v, status not %d:\n%s", !c.Alive(), code, &c.Stderr)
	}
}

// takenBy checks that next serves and the container before has ended.
func (n *node) takenBy(next *container) {
	n.t.Helper()
	generation := n.generation()
	next.saw(`msg="upgrade done"`)
	n.now.ends(0)
	n.now = next
	u := n.status().Upgrade
	if u.Generation != generation+1 || u.Pause <= 0 || u.Pause >= u.Took || u.From == "" || !strings.HasPrefix(u.Program, "take-over by uid ") {
		n.t.Errorf("generation %d was followed by %+v", generation, u)
	}
	n.t.Logf("generation %d, pause %v of %v", u.Generation, u.Pause, u.Took)
}

// generation is that of the daemon that has begun to serve last, by its log: it may have been replaced since.
func (n *node) generation() (g uint32) {
	g = 1
	if _, after, ok := strings.Cut(n.now.Stderr.String(), " generation="); ok {
		_, _ = fmt.Sscan(after, &g)
	}
	return g
}

// refuses checks that a new container ends because of why, and that the daemon goes on.
func (n *node) refuses(next *container, why string) {
	n.t.Helper()
	next.ends(1)
	if !next.Stderr.Has(why) {
		n.t.Errorf("the reason is not %q:\n%s", why, &next.Stderr)
	}
	eventually(n.t, "the daemon goes on", func() error {
		if u := n.status().Upgrade; u.Generation != n.generation() || u.Running || !n.now.Alive() {
			return fmt.Errorf("after %q: %+v", why, u)
		}
		return nil
	})
}

// finish ends the last container, which leaves nothing.
func (n *node) finish() {
	if !n.t.Failed() {
		n.now.kill("TERM")
		n.now.ends(0)
		if left, err := os.ReadDir(n.dir); err != nil || len(left) > 0 {
			n.t.Errorf("left: %v, %v", left, err)
		}
	}
	if n.t.Failed() {
		n.t.Logf("the last daemon:\n%s", n.now.Stderr.Tail())
	}
}

// TestTakeOver replaces containers under traffic of all kinds: nothing is lost, and the containers before
// end with status 0.
func TestTakeOver(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		here, there := newNode(t), newHost(t)
		instance := here.status().Instance
		l := startLoad(t, here.host, there, 20000)
		for i := range 3 {
			l.progress(uint64(i * 50))
			here.takenBy(here.container())
		}
		l.progress(100)
		l.finish()
		l.audit.all(t, l.socks[0], l.socks[1])
		if l.ops.sums[rds.Unknown] > 0 || l.ops.stale > 0 {
			t.Errorf("statuses %v, %d stale", l.ops.sums, l.ops.stale)
		}
		if now := here.status().Instance; now != instance {
			t.Errorf("the instance was %v and is %v", instance, now)
		}
	})
}

// TestTakeOverRefused: whoever may not take over, or cannot, learns why, and nobody else notices.
func TestTakeOverRefused(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		secrets := t.TempDir()
		if err := errors.Join(os.WriteFile(secrets+"/right", []byte("0123456789abcdef\n"), 0o644), os.WriteFile(secrets+"/wrong", []byte("0123456789abcdeF\n"), 0o644),
			os.WriteFile(secrets+"/short", []byte("0123456789abcde\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		// The secrets are in the folder that the containers share.
		here, there := newNode(t, "-socket-mode", "0666"), newHost(t)
		for _, name := range []string{"right", "wrong", "short"} {
			if err := exec.Command("cp", secrets+"/"+name, here.dir).Run(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(here.dir, 0o777); err != nil {
			t.Fatal(err)
		}
		b := startBystanders(t, here.host, there)
		other := func(token string) *container { return here.inUserNamespace("-upgrade-token", token) }
		here.refuses(here.inUserNamespace(), "is neither root nor this daemon's user (0): run the new daemon as that user")
		here.takenBy(here.container("-upgrade-token", here.dir+"/right"))
		here.refuses(here.inUserNamespace(), "has sent no secret")
		here.refuses(other(here.dir+"/wrong"), "has another secret than this daemon")
		here.refuses(other(here.dir+"/short"), "a secret of 15 bytes")
		here.refuses(other(here.dir+"/none"), "no such file")
		here.refuses(here.containerOf(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}), "run both in the same one")
		b.progress()
		here.takenBy(other(here.dir + "/right"))
		b.progress()
		b.finish()
		for _, name := range []string{"right", "wrong", "short"} {
			os.Remove(here.dir + "/" + name)
		}
	})
}

// inUserNamespace starts a container in a user namespace, whose root is nobody that the daemon knows.
func (n *node) inUserNamespace(more ...string) *container {
	n.t.Helper()
	maps := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 123456, Size: 1}}
	return n.containerOf(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: maps, GidMappings: maps, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{}}, more...)
}

// TestTakeOverStale: a folder that another machine's daemon uses. Its socket's file looks like that of a
// dead daemon, and it must not be replaced.
func TestTakeOverStale(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		here := newNode(t)
		b, err := stats.Create(here.dir + "/other.stats")
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: here.dir + "/other"})
		}
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		here.refuses(here.container("-socket", here.dir+"/other"), "another machine's daemon uses this folder")
		if err := os.Remove(here.dir + "/other"); err != nil {
			t.Error(err)
		}
	})
}

// TestTakeOverDies: a new container that is killed at any step, or stops there, and two at a time.
func TestTakeOverDies(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		here := newNode(t)
		there := newHost(t)
		b := startBystanders(t, here.host, there)
		for _, point := range []string{failpoint.ControlSocket, failpoint.StatsFile, failpoint.Taking, failpoint.Adopt, failpoint.Segment, failpoint.Adopted} {
			here.env = []string{"RDSD_FAIL=" + point + ":1!"}
			next := here.container()
			if !next.Wait(patience) {
				t.Fatalf("at %s: it lives:\n%s", point, &next.Stderr)
			}
			eventually(t, "the daemon goes on after "+point, func() error {
				if u := here.status().Upgrade; u.Running || u.Generation != 1 || u.Error == "" {
					return fmt.Errorf("%+v", u)
				}
				return nil
			})
			b.progress()
		}
		here.env = []string{"RDSD_FAIL=" + failpoint.Taking + ":1~"}
		first := here.container()
		eventually(t, "an attempt", func() error {
			if !here.status().Upgrade.Running {
				return errors.New("none")
			}
			return nil
		})
		here.env = nil
		second := here.container()
		second.ends(1)
		if !second.Stderr.Has("is in progress since") {
			t.Errorf("the second:\n%s", &second.Stderr)
		}
		first.Signal(syscall.SIGCONT)
		here.takenBy(first)
		b.finish()
	})
}

// TestTakeOverSurvives: a container that is killed when another one has its state. That one, which cannot see
// its process, serves, and nothing is lost.
func TestTakeOverSurvives(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		here, there := newNode(t), newHost(t)
		here.env = []string{"RDSD_FAIL=" + failpoint.Go + ":1!"}
		here.takenBy(here.container())
		here.env = nil
		b := startBystanders(t, here.host, there)
		next := here.container()
		next.saw(`msg="upgrade done"`)
		here.now.ends(137)
		here.now = next
		b.progress()
		b.finish()
	})
}

// TestTakeOverFault: what cannot be taken over of one process ends that process's session, so that a container
// that is started once more takes over.
func TestTakeOverFault(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		here := newNode(t)
		c := here.open()
		here.env = []string{"RDSD_FAIL=" + failpoint.Process + ":1"}
		here.refuses(here.container(), "hand-over: adoption")
		<-c.Done()
		if why := here.status().Upgrade.Error; !strings.Contains(why, "start the new daemon again") {
			t.Errorf("the reason is %q", why)
		}
		here.env = nil
		here.takenBy(here.container())
	})
}

// TestTakeOverStays: with -stay the container before does not end, holds nothing that programs have, and
// ends by SIGTERM without that anybody notices.
func TestTakeOverStays(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		here := newNode(t, "-stay")
		c := here.open()
		s := here.bind(c, 0)
		old := here.now
		next := here.container()
		next.saw(`msg="upgrade done"`)
		old.saw("does nothing any more and waits for SIGTERM")
		if fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", old.Pid())); err != nil || slices.ContainsFunc(fds, func(f string) bool {
			to, _ := os.Readlink(f)
			return strings.HasPrefix(to, "/memfd:")
		}) {
			t.Errorf("it has memory still: %v, %v", fds, err)
		}
		if maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", old.Pid())); err != nil || strings.Contains(string(maps), "memfd:rdsd") {
			t.Errorf("it has memory still: %s, %v", maps, err)
		}
		old.Signal(syscall.SIGTERM)
		old.ends(0)
		here.now = next
		if _, err := s.SendTo([]byte("x"), s.LocalAddrPort()); err != nil {
			t.Error(err)
		}
	})
}
