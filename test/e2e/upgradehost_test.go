package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"golang.org/x/sys/unix"
)

// A planned restart replaces the process behind a host. The test is no parent of the new one,
// so a host looks at its daemons by their process ids. The log is that of all its daemons,
// because they inherit standard error.

// adoptOrphans makes this process the parent of the daemons whose starters have ended, so that
// it gets their exit statuses.
func adoptOrphans(t *testing.T) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
}

// killOrphans kills what has env in its environment: the daemons of a test that ended too early
// to end them. A daemon that has taken over does not end with the test, unlike its predecessor.
func killOrphans(env string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, e := range environs {
		b, _ := os.ReadFile(e)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(e)))
		if pid != os.Getpid() && slices.Contains(strings.Split(string(b), "\x00"), env) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// pid is the process id of the daemon that serves.
func (h *host) pid() int {
	if h.serving != 0 {
		return h.serving
	}
	return h.Pid()
}

// Signal sends a signal to the daemon that serves.
func (h *host) Signal(s syscall.Signal) {
	if h.serving != 0 {
		_ = unix.Kill(h.serving, s)
		return
	}
	h.process.Signal(s)
}

// Kill kills all processes of the daemon and waits for their end.
func (h *host) Kill() {
	for all := h.processes(); len(all) > 0; all = h.processes() { // a starter may start one
		for _, pid := range all {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	h.process.Kill()
}

// wait waits for the end of all processes of the daemon, and returns the exit status of the one
// that has served last.
func (h *host) wait() int {
	h.t.Helper()
	code := h.process.wait()
	if h.serving == 0 {
		return code
	}
	if code != 0 && !h.dies {
		h.t.Errorf("a daemon that has handed over ended with status %d", code)
	}
	return reap(h.t, h.serving)
}

// reap waits for the end of a process whose parent has ended, and returns its exit status, -1
// after a signal.
func reap(t *testing.T, pid int) (code int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the end of process %d", pid), func() error {
		var ws unix.WaitStatus
		got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil)
		if err == nil && got != pid {
			err = errors.New("it runs")
		}
		code = ws.ExitStatus()
		return err
	})
	return code
}

// processes are the processes of the daemon that have not ended: the daemon, its starter, and a
// successor, whatever program that is.
func (h *host) processes() (pids []int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, l := range lines {
		b, err := os.ReadFile(l)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(l)))
		args := strings.Split(string(b), "\x00")
		if err != nil || pid == os.Getpid() || filepath.Base(args[0]) == "rdsctl" || !slices.Contains(args, h.sock) {
			continue
		}
		pids = append(pids, pid)
	}
	return pids
}

// alone waits until there is no process but the daemon that serves and its starter.
func (h *host) alone() {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("daemon %v", h.addrs), func() error {
		if p := h.processes(); len(p) != 2 || !slices.Contains(p, h.pid()) {
			return fmt.Errorf("processes %v, not %d and a starter", p, h.pid())
		}
		return nil
	})
}

// starter returns the process id of the daemon's starter. No upgrade is in progress.
func (h *host) starter() int {
	h.t.Helper()
	h.alone()
	p := h.processes()
	return p[1-slices.Index(p, h.pid())]
}

// stopped waits until one of the daemon's processes is stopped, and returns its process id.
func (h *host) stopped() (pid int) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("daemon %v", h.addrs), func() error {
		if pid = h.standing(); pid == 0 {
			return errors.New("no process is stopped")
		}
		return nil
	})
	return pid
}

// standing returns the process id of a process of the daemon that is stopped, 0 if there is none.
func (h *host) standing() int {
	for _, pid := range h.processes() {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, state, _ := strings.Cut(string(b), ") "); strings.HasPrefix(state, "T") {
			return pid
		}
	}
	return 0
}

// kill sends a signal to a process of the daemon.
func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := unix.Kill(pid, s); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// upgrading is rdsctl daemon upgrade.
func (h *host) upgrading(args ...string) *process {
	h.t.Helper()
	return startProcess(h.t, nil, program("rdsctl"), append([]string{"daemon", "upgrade", "-socket", h.sock, "-o", "json-v2", "-wait", patience.String()}, args...)...)
}

// upgrade replaces the daemon, which must succeed.
func (h *host) upgrade(args ...string) *ctl.Upgrade {
	h.t.Helper()
	return h.succeeded(h.upgrading(args...))
}

// succeeded waits for the end of an upgrade that must succeed.
func (h *host) succeeded(p *process) *ctl.Upgrade {
	h.t.Helper()
	var r ctl.Response
	if code := p.wait(); code != 0 || json.Unmarshal([]byte(p.stdout()), &r) != nil || r.Upgrade == nil {
		h.t.Fatalf("%v: status %d, %s%s\n%s", p.Cmd, code, p.stdout(), p.log(), h.Stderr.Tail())
	}
	return h.replaced(r.Upgrade)
}

// replaced notes that a new daemon serves.
func (h *host) replaced(u *ctl.Upgrade) *ctl.Upgrade {
	h.t.Helper()
	before := h.pid()
	if u.PID == before || u.Error != "" || u.Running || u.Pause <= 0 || u.From == "" {
		h.t.Errorf("daemon %d was replaced: %+v", before, u)
	}
	h.serving = u.PID
	h.alone()
	if before != h.Pid() {
		if code := reap(h.t, before); code != 0 {
			h.t.Errorf("daemon %d handed over and ended with status %d", before, code)
		}
	}
	return u
}

// upgradeFails starts an upgrade that must fail. rdsctl must say why, in these words, and the
// daemon must go on with nothing left of the attempt.
func (h *host) upgradeFails(args []string, wanted ...string) {
	h.t.Helper()
	h.failed(h.upgrading(args...), wanted...)
}

// failed waits for the end of an upgrade that must fail.
func (h *host) failed(p *process, wanted ...string) {
	h.t.Helper()
	code := p.wait()
	said := p.stdout() + p.log()
	if code != 1 {
		h.t.Fatalf("rdsctl: status %d, not 1: %s", code, said)
	}
	if strings.ContainsAny(said, "\x00\x1b") {
		h.t.Errorf("rdsctl writes control characters: %q", said)
	}
	contains(h.t, "rdsctl daemon upgrade", said, append(wanted, fmt.Sprintf("the daemon (pid %d) goes on", h.pid()))...)
	h.alone()
	if files := h.files(); len(files) != 3 {
		h.t.Errorf("files after a failed upgrade: %v", files)
	}
}

// files are the names in the daemon's folder.
func (h *host) files() (names []string) {
	h.t.Helper()
	all, err := os.ReadDir(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
