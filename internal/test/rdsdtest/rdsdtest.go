// Package rdsdtest runs the program rdsd for tests of clients, and replaces it by new
// processes under them.
package rdsdtest

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/internal/test/loopback"
	"golang.org/x/sys/unix"
)

// patience is much longer than any step takes, even on a busy machine.
const patience = 2 * time.Minute

// Daemon is a running rdsd.
type Daemon struct {
	Socket string
	Addr   netip.Addr
	p      *child.Process // the first one; all have its log
	pidfd  int            // of the one that serves
	taken  int            // how many have taken over
}

// Start builds rdsd and starts it. It is ended at the end of the test.
func Start(t *testing.T) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "rdsd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	prog := filepath.Join(t.TempDir(), "rdsd") // in no folder that the daemon may write
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", prog, "github.com/rdsd/rdsd/cmd/rdsd").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	net, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	d := &Daemon{Socket: dir + "/s", Addr: net.At(1)}
	cmd := exec.Command(prog, "-socket", d.Socket, "-listen", d.Addr.String())
	cmd.Env = child.Env()
	if d.p, err = child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if d.pidfd, err = unix.PidfdOpen(d.p.Pid(), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.end(t) })
	if !d.p.Until(patience, func() bool { return d.p.Stderr.Has("msg=serving") }) {
		t.Fatalf("rdsd does not serve:\n%s", d.p.Stderr.Tail())
	}
	return d
}

var done = regexp.MustCompile(`msg="upgrade done" generation=\d+ pid=(\d+)`)

// Upgrade has a new process take over, and returns when it serves.
func (d *Daemon) Upgrade(t *testing.T) {
	t.Helper()
	if err := unix.PidfdSendSignal(d.pidfd, unix.SIGUSR2, nil, 0); err != nil {
		t.Fatal(err)
	}
	var found [][]string
	if !d.p.Until(patience, func() bool {
		found = done.FindAllStringSubmatch(d.p.Stderr.String(), -1)
		return len(found) > d.taken
	}) {
		t.Fatalf("rdsd is not replaced:\n%s", d.p.Stderr.Tail())
	}
	d.taken = len(found)
	pid, err := strconv.Atoi(found[d.taken-1][1])
	if err != nil {
		t.Fatal(err)
	}
	next, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("rdsd %d: %v\n%s", pid, err, d.p.Stderr.Tail())
	}
	before := d.pidfd
	d.pidfd = next
	defer unix.Close(before)
	if !ended(before) {
		t.Fatalf("the old rdsd does not end:\n%s", d.p.Stderr.Tail())
	}
}

// Under replaces the daemon n times while run runs. It calls run again if once is too short.
func (d *Daemon) Under(t *testing.T, n int, run func()) {
	t.Helper()
	for last := d.taken + n; d.taken < last && !t.Failed(); {
		over := make(chan struct{})
		go func() {
			defer close(over)
			run()
		}()
		for running := true; running && d.taken < last; {
			d.Upgrade(t)
			select {
			case <-over:
				running = false
			default:
			}
		}
		<-over
	}
}

// ended waits for the end of a process.
func ended(pidfd int) bool {
	p := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		if n, err := unix.Poll(p, 1000); err == nil && n == 1 {
			return true
		}
	}
	return false
}

// end ends the daemon.
func (d *Daemon) end(t *testing.T) {
	_ = unix.PidfdSendSignal(d.pidfd, syscall.SIGTERM, nil, 0)
	if !ended(d.pidfd) {
		t.Errorf("rdsd does not end:\n%s", d.p.Stderr.Tail())
		_ = unix.PidfdSendSignal(d.pidfd, syscall.SIGKILL, nil, 0)
	}
	unix.Close(d.pidfd)
	<-d.p.Ended() // its output is complete when the last one has ended
	if d.p.Code() != 0 {
		t.Errorf("rdsd: status %d\n%s", d.p.Code(), d.p.Stderr.Tail())
	}
}
