package daemon

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// inCgroup starts a daemon whose clients are in the cgroup that the test says.
func inCgroup(t *testing.T, cgroup *atomic.Pointer[string], keys ...[2]string) *Daemon {
	t.Helper()
	return startDaemonWith(t, func(cfg *config.Config) {
		for _, k := range keys {
			if err := cfg.Set(k[0], k[1]); err != nil {
				t.Fatal(err)
			}
		}
	}, func(d *Daemon) {
		d.labels.cgroupOf = func(*ipc.Conn) ([]byte, error) {
			if c := cgroup.Load(); c != nil {
				return []byte(*c), nil
			}
			return nil, errors.New("the daemon sees nothing")
		}
	})
}

var pods = [2]string{"quota.accounts", "kubernetes"}

// TestAccountOfProcess: the cgroup in which a process is when it connects is what it counts for,
// also if its user is trusted. An override for the account bounds it, and other accounts go on.
func TestAccountOfProcess(t *testing.T) {
	var cgroup atomic.Pointer[string]
	d := inCgroup(t, &cgroup, pods, [2]string{"quota.overrides", "account=podx clients=1"})
	cgroup.Store(new("0::/kubepods/podx/c1"))
	p := attached(t, d)
	c := dialRaw(t, d)
	if e, ok := c.call(&ipc.Hello{Role: ipc.RoleClient, Params: fewParams}).Body.(*ipc.Err); !ok || !strings.Contains(e.Text, "account podx has 1, its quota is 1") {
		t.Errorf("another process of the pod: %+v", e)
	}
	cgroup.Store(new("0::/kubepods/pody/c2"))
	attached(t, d)
	cgroup.Store(new("0::/system.slice"))
	attached(t, d)
	s := d.status(t)
	slices.SortFunc(s.Users, func(a, b ctl.User) int { return strings.Compare(a.Account, b.Account) })
	var has []string
	for _, u := range s.Users {
		has = append(has, fmt.Sprintf("%s %d/%d", u.Name(), u.Clients.Used, u.Sockets.Used))
	}
	if want := []string{fmt.Sprintf("uid %d 1/1", os.Getuid()), "account podx 1/1", "account pody 1/1"}; !slices.Equal(has, want) {
		t.Errorf("%q, want %q", has, want)
	}
	socks, err := backend{d: d}.Sockets()
	if err != nil || len(socks) != 3 || !slices.ContainsFunc(socks, func(s ctl.SocketInfo) bool { return s.Port == p.addr.Port && s.Owner.Account == "podx" }) {
		t.Errorf("%+v, %v", socks, err)
	}
}

func (d *Daemon) status(t *testing.T) ctl.Status {
	t.Helper()
	s, err := backend{d: d}.Status()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestUnreadableCgroup: a process whose cgroup cannot be read counts for its user, and the status
// warns of it once. It is not served if processes can bring the cause about: one that has ended
// may have given its connection to another, which would have no account.
func TestUnreadableCgroup(t *testing.T) {
	var cgroup atomic.Pointer[string]
	d := inCgroup(t, &cgroup, pods)
	attached(t, d)
	attached(t, d)
	if n := d.admission.clientsOf()[config.UserAccount(uint32(os.Getuid()))]; n != 2 {
		t.Errorf("%d processes count for the user", n)
	}
	found := 0
	for _, w := range d.status(t).Warnings {
		if strings.Contains(w, "quota.accounts: processes whose cgroup cannot be read count for their users: the daemon sees nothing") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d warnings in %q", found, d.status(t).Warnings)
	}
	for _, cause := range []error{ipc.ErrPeerEnded, &os.PathError{Op: "open", Err: unix.EMFILE}, fmt.Errorf("SO_PEERPIDFD: %w", unix.ENFILE)} {
		turnsAway(t, cause)
	}
}

// turnsAway: a connection whose cgroup cannot be read because of cause is not served.
func turnsAway(t *testing.T, cause error) {
	t.Helper()
	d := startDaemonWith(t, func(cfg *config.Config) { _ = cfg.Set(pods[0], pods[1]) }, func(d *Daemon) {
		d.labels.cgroupOf = func(*ipc.Conn) ([]byte, error) { return nil, cause }
	})
	_, err := dialRaw(t, d).ctl.Recv()
	d.admission.mu.Lock()
	defer d.admission.mu.Unlock()
	if err == nil || d.admission.arrived > 0 {
		t.Errorf("%v: the connection is served: %v", cause, err)
	}
	if w := d.labels.warning.Load(); w != nil || d.admission.arrivingSince.Load() != 0 {
		t.Errorf("%v: a warning, or a connection that arrives for ever", cause)
	}
}

// TestLabelsHandedOver: after a planned restart a process counts for the account that it counted
// for, wherever it is by then. Of a state without labels its account is that of its cgroup now.
func TestLabelsHandedOver(t *testing.T) {
	for version, want := range map[uint16]string{handover.Newest: "podx", 5: "pody"} {
		var cgroup atomic.Pointer[string]
		d := inCgroup(t, &cgroup, pods, [2]string{"quota.overrides", "account=podx sockets=2"})
		cgroup.Store(new("0::/kubepods/podx/c1"))
		p := attached(t, d)
		tool := rdsctlOf(t, d)
		cgroup.Store(new("0::/kubepods/pody/c2"))
		x := stands(t, d)
		x.write(version)
		next := x.succeed()
		if n := next.admission.clientsOf(); n[config.Account{Label: want}] != 1 {
			t.Errorf("version %d: processes %v, want one of %s", version, n, want)
		}
		if t2, err := next.engine.Inspect(func(f func()) error { return next.loop.askFor(patience, f) }).Users(); err != nil || t2[config.Account{Label: want}].Sockets != 1 {
			t.Errorf("version %d: %+v, %v", version, t2, err)
		}
		p.call(&ipc.Bind{Addr: p.addr.Addr})
		if _, refused := p.call(&ipc.Bind{Addr: p.addr.Addr}).Body.(*ipc.Err); refused != (want == "podx") {
			t.Errorf("version %d: a third socket is refused: %v", version, refused)
		}
		tool.close()
		p.close()
	}
}

// TestHandedLabelIsChecked: a label that no account can have fails the state.
func TestHandedLabelIsChecked(t *testing.T) {
	var cgroup atomic.Pointer[string]
	d := inCgroup(t, &cgroup, pods)
	cgroup.Store(new("0::/kubepods/pod7x"))
	attached(t, d)
	x := part(t, d)
	for _, label := range []string{"pod 7", "pod,7", "\x1b[31m"} {
		next := x.next()
		state := []byte(strings.Replace(string(x.state), "pod7x", label, 1))
		if _, err := x.adopt(next, state, x.copies()); err == nil || !strings.Contains(err.Error(), "a process in an account with the label") {
			t.Errorf("%q: %v", label, err)
		}
		next.closeAll()
	}
	x.resume()
}
