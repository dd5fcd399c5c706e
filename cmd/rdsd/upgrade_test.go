package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var handedOver = regexp.MustCompile(`msg="handed over" pid=(\d+)`)

// successor waits for the daemon that takes over from p and returns a descriptor of its
// process. The test ends that process, which has p's log: before that p.wait waits.
func (p *process) successor() (pidfd int) {
	p.t.Helper()
	p.waitFor("msg=\"handed over\" pid=")
	found := handedOver.FindAllStringSubmatch(p.output(), -1)
	pid := atoi(p.t, found[len(found)-1][1])
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		p.t.Fatalf("the successor: %v\n%s", err, p.output())
	}
	p.t.Cleanup(func() {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		unix.Close(pidfd)
	})
	return pidfd
}

func waitEnd(t *testing.T, pidfd int) {
	t.Helper()
	for end := time.Now().Add(processTimeout); time.Now().Before(end); {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 1000); err == nil && n == 1 {
			return
		}
	}
	t.Fatal("the successor does not end")
}

// TestUpgradeBySignal: SIGUSR2 has a new process take over. The old one ends with status 0
// after it has named the new one to systemd, which hears from that one then. Sockets of
// systemd stay its own. The last daemon removes its files.
func TestUpgradeBySignal(t *testing.T) {
	s := supervise(t)
	p := startWith(t, s.env, s.files, "-socket", s.dir+"/s", "-port", s.port).waitReady()
	s.hear(t, "READY=1")
	p.Signal(syscall.SIGUSR2)
	next := p.successor()
	s.hear(t, "MAINPID="+handedOver.FindStringSubmatch(p.output())[1])
	s.hear(t, "READY=1")
	s.hear(t, "WATCHDOG=1")
	if err := unix.PidfdSendSignal(next, unix.SIGTERM, nil, 0); err != nil {
		t.Fatal(err)
	}
	s.hear(t, "STOPPING=1")
	waitEnd(t, next)
	if code := p.wait(); code != exitOK {
		t.Errorf("status %d", code)
	}
	if _, err := os.Stat(s.dir + "/s"); err != nil {
		t.Errorf("the control socket's file is systemd's: %v", err)
	}
	if left, err := filepath.Glob(s.dir + "/s.*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestUpgradeRefused: a successor that cannot read the configuration says why. The daemon
// goes on, and hands over when the configuration is mended.
func TestUpgradeRefused(t *testing.T) {
	dir := socketDir(t)
	file := filepath.Join(dir, "rdsd.toml")
	listen := "listen = [" + strconv.Quote(address(t)) + "]\n"
	write := func(doc string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(listen)
	p := start(t, "-config", file, "-socket", filepath.Join(dir, "s")).waitReady()
	write(listen + "prot = 1\n")
	p.Signal(syscall.SIGUSR2)
	p.waitFor(`msg="upgrade failed, this daemon goes on"`)
	if line, _, _ := strings.Cut(p.output()[p.seen:], "\n"); !strings.Contains(line, "unknown key") {
		t.Errorf("the reason is %q", line)
	}
	write(listen)
	p.Signal(syscall.SIGUSR2)
	next := p.successor()
	if err := unix.PidfdSendSignal(next, unix.SIGTERM, nil, 0); err != nil {
		t.Fatal(err)
	}
	waitEnd(t, next)
	if code := p.wait(); code != exitOK {
		t.Errorf("status %d", code)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expectEmpty(t, dir)
}
