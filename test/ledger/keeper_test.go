package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// envKeeper is set for a process that is to be a keeper.
const envKeeper = "LEDGER_KEEPER"

// daemon is a daemon and those that take over from it, one after the other. A keeper has them:
// a process that ends when the last of them has ended. Its standard error is their log.
type daemon struct {
	*process // the keeper

	mu    sync.Mutex
	pid   int // of the one that serves; guarded by mu
	pidfd int // of that process, -1 before the first one serves; guarded by mu
}

// startDaemon starts a daemon and its keeper. follow has to follow when it serves.
func (n *network) startDaemon(path string, args ...string) (*daemon, error) {
	cmd := exec.Command(os.Args[0], append([]string{path}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}        // the keeper kills those that it keeps
	p, err := n.startCommand([]string{envKeeper + "=1", "GOMAXPROCS=4"}, cmd) // for io.threads = auto
	if err != nil {
		return nil, err
	}
	return &daemon{process: p, pidfd: -1}, nil
}

// follow notes that the process pid serves. A process that has ended since changes nothing.
func (d *daemon) follow(pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	if d.pidfd >= 0 {
		unix.Close(d.pidfd)
	}
	d.pid, d.pidfd = pid, fd
}

// serving returns the process id of the daemon that serves.
func (d *daemon) serving() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pid
}

// signal sends s to the daemon that serves.
func (d *daemon) signal(s syscall.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = unix.PidfdSendSignal(d.pidfd, s, nil, 0)
}

// pause stops the daemon that serves, for as long as d. If it is replaced in that time, its
// successor is not stopped.
func (d *daemon) pause(long time.Duration) {
	d.mu.Lock()
	fd, err := unix.FcntlInt(uintptr(d.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	d.mu.Unlock()
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
	time.Sleep(long)
	_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
}

// end ends the daemon in an orderly way. It reports whether that is done in time.
func (d *daemon) end(limit time.Duration) bool {
	asked := 0
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		// A daemon that has just handed over does not pass the signal on. None gets it twice,
		// because the second one would end it at once.
		if pid := d.serving(); pid != asked {
			asked = pid
			d.signal(syscall.SIGTERM)
		}
		if d.Wait(50 * time.Millisecond) {
			return true
		}
	}
	return false
}

// kill kills the daemon, and the processes with which it hands over. It reports whether all of
// them end in time.
func (d *daemon) kill(limit time.Duration) bool {
	d.Signal(syscall.SIGTERM)
	return d.Wait(limit)
}

// keeper is a process whose descendants are all its children when their parents have ended.
type keeper struct{ killing atomic.Bool }

// runKeeper starts the program args[0] and returns when neither it nor any process that it has started
// lives. A signal kills them. Otherwise the status is that of the last one that had to be 0.
func runKeeper(args []string) int {
	k := &keeper{}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "keeper:", err)
		return 1
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	if _, err := os.StartProcess(args[0], args, &os.ProcAttr{Env: withoutKeeper(), Files: []*os.File{nil, os.Stdout, os.Stderr}}); err != nil {
		fmt.Fprintln(os.Stderr, "keeper:", err)
		return 1
	}
	go func() {
		<-ended
		k.killing.Store(true)
		k.killAll()
	}()
	return k.reap()
}

func withoutKeeper() []string {
	_ = os.Unsetenv(envKeeper)
	return os.Environ()
}

// reap waits for the end of all children. Every daemon must end with status 0, also one that has
// handed over.
func (k *keeper) reap() (code int) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return code
		case k.killing.Load():
			k.killAll() // those that were the children of the one that has ended
		case status != 0:
			fmt.Fprintf(os.Stderr, "keeper: process %d ended with status %d, signal %v\n", pid, status.ExitStatus(), status.Signal())
			code = 1
		}
	}
}

// killAll kills the children that there are.
func (k *keeper) killAll() {
	all, _ := os.ReadDir("/proc")
	for _, f := range all {
		pid, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + f.Name() + "/stat") // empty if it has ended
		// State and parent follow the name, which may have spaces and parentheses.
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// TestKeeper: a keeper has the processes that its program leaves behind. It notices how they end,
// and kills them.
func TestKeeper(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		kill         bool
		code         int
	}{
		{"ends", "sh -c 'read x <&3' & exec echo ready", false, 0},
		{"fails", "sh -c 'read x <&3; exit 3' & exec echo ready", false, 1},
		{"killed", "sh -c 'sh -c \"exec sleep 1000\" & exec sleep 1000' & exec echo ready", true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "go")
			if err := unix.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := newNetwork().startDaemon("/bin/sh", "-c", "exec 3<>"+fifo+"; "+tc.script)
			if err != nil {
				t.Fatal(err)
			}
			defer d.kill(patience)
			if _, ok := d.line("ready", patience); !ok {
				t.Fatal(d.log())
			}
			if tc.kill {
				d.Signal(syscall.SIGTERM)
			} else if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
				t.Fatal(err)
			}
			if !d.Wait(patience) || d.Code() != tc.code || strings.Contains(d.log(), "status 3") != (tc.code != 0) {
				t.Errorf("ended: %v, %s", !d.Alive(), d.log())
			}
		})
	}
}
