package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
)

// callSet returns what systemd means by the name of a system call or of a set of them.
func callSet(t *testing.T, name string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	if !strings.HasPrefix(name, "@") {
		all[name] = true
		return all
	}
	out, err := exec.Command("systemd-analyze", "syscall-filter", "--no-pager", name).Output()
	if err != nil {
		t.Fatalf("systemd-analyze syscall-filter %s: %v", name, err)
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line == name {
			continue
		}
		for c := range callSet(t, line) {
			all[c] = true
		}
	}
	return all
}

// unitAllows returns the system calls that the unit permits.
func unitAllows(t *testing.T) map[string]bool {
	t.Helper()
	unit, err := os.ReadFile("../../contrib/systemd/rdsd.service")
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^SystemCallFilter=(~?)(.*)$`).FindAllStringSubmatch(string(unit), -1) {
		for name := range strings.FieldsSeq(m[2]) {
			for c := range callSet(t, name) {
				if m[1] == "~" {
					delete(allowed, c)
				} else {
					allowed[c] = true
				}
			}
		}
	}
	return allowed
}

// TestSystemCalls checks that the unit's SystemCallFilter permits all calls of the daemon, from
// its start to its end. Otherwise a refused call would first show on somebody's machine.
func TestSystemCalls(t *testing.T) {
	for _, tool := range []string{"strace", "systemd-analyze"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: apt-get install -y --no-install-recommends strace systemd", tool)
		}
	}
	if out, err := exec.Command("strace", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		t.Skipf("processes cannot be traced here: %s", out)
	}
	isolated(t, func(t *testing.T) {
		allowed := unitAllows(t)
		if len(allowed) < 100 || allowed["mount"] || !allowed["landlock_restrict_self"] {
			t.Fatalf("the unit allows %d calls: not read as systemd does", len(allowed))
		}
		// A daemon with capabilities calls it to give them up. The unit's daemon has none.
		allowed["capset"] = true

		trace := filepath.Join(t.TempDir(), "calls")
		metrics, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		metrics.Close() // the daemon listens there from now on
		// With -D the daemon is our child, and strace only traces it.
		a := newHost(t, under("strace", "-D", "-f", "-q", "-e", "signal=none", "-o", trace), withArgs("-io-threads", "1", "-metrics-listen", metrics.Addr().String()))
		b := newHost(t)
		ca, cb := a.open(), b.open()
		from, to := a.bind(ca, 4000), b.bind(cb, 4000)
		exchange := func() {
			t.Helper()
			for _, s := range []*rds.Socket{from, to} {
				dest := netip.AddrPortFrom(b.addr(), 4000)
				if s == to {
					dest = netip.AddrPortFrom(a.addr(), 4000)
				}
				if _, err := s.SendTo(make([]byte, 100_000), dest); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range []*rds.Socket{from, to} {
				if _, _, err := s.RecvFrom(make([]byte, 100_000)); err != nil {
					t.Fatal(err)
				}
			}
		}
		exchange()
		contains(t, "rdsctl bench", a.rdsctl("bench", "-mode", "rdma-write", "-d", "10ms", "-warmup", "0s"), "checked")
		contains(t, "rdsctl status", a.rdsctl("status"), "metrics")
		if _, err := a.ask(ctl.Request{Kind: ctl.KindReload}); err != nil {
			t.Error(err)
		}
		a.Signal(syscall.SIGHUP)
		if resp, err := http.Get("http://" + metrics.Addr().String() + "/metrics"); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("metrics: %v", err)
		} else {
			resp.Body.Close()
		}
		if err := a.reset(b); err != nil {
			t.Error(err)
		}
		exchange()
		ca.Close()
		cb.Close()
		a.settled()
		a.stop()
		var calls []byte
		eventually(t, "the end of the trace", func() error {
			var err error
			if calls, err = os.ReadFile(trace); err == nil && !strings.Contains(string(calls), "+++ exited") {
				err = errors.New("the tracer still writes")
			}
			return err
		})
		a.under = nil
		a.start() // so that its end is checked, too
		used := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^\d+ +([a-z_0-9]+)\(`).FindAllStringSubmatch(string(calls), -1) {
			used[m[1]] = true
		}
		for _, must := range []string{"execve", "memfd_create", "epoll_wait", "accept4"} {
			if !used[must] && !used[strings.Replace(must, "_wait", "_pwait", 1)] {
				t.Errorf("no %s in the trace of %d calls", must, len(used))
			}
		}
		for c := range used {
			if !allowed[c] {
				t.Errorf("the daemon calls %s, contrib/systemd/rdsd.service refuses it: %s", c, firstCall(string(calls), c))
			}
		}
	})
}

func firstCall(trace, name string) string {
	for line := range strings.Lines(trace) {
		if strings.Contains(line, " "+name+"(") {
			return strings.TrimSpace(line)
		}
	}
	return fmt.Sprintf("no %s", name)
}
