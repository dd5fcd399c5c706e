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

// TestUpgradeStays: the daemon that has taken over goes on when the one before has ended, also if
// no sandbox keeps the two from each other: it can be upgraded again.
func TestUpgradeStays(t *testing.T) {
	for _, sandbox := range []string{"off", "auto"} {
		dir := socketDir(t)
		p := startWith(t, []string{"RDSD_SANDBOX=" + sandbox, "RDSD_LISTEN=" + address(t)}, nil, "-socket", filepath.Join(dir, "s")).waitReady()
		old, err := unix.PidfdOpen(p.Pid(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(old)
		p.Signal(syscall.SIGUSR2)
		next := p.successor()
		waitEnd(t, old)
		if !p.Until(processTimeout, func() bool { return p.Stderr.Has("generation=2") }) {
			t.Fatal("the successor does not serve")
		}
		if err := unix.PidfdSendSignal(next, unix.SIGUSR2, nil, 0); err != nil {
			t.Fatal(err)
		}
		last := p.successor()
		if !p.Until(processTimeout, func() bool { return p.Stderr.Has("generation=3") }) {
			t.Fatal("the second successor does not serve")
		}
		if strings.Contains(p.output(), "shutting down") {
			t.Errorf("sandbox %s: a daemon shut down:\n%s", sandbox, p.output())
		}
		waitEnd(t, next)
		if err := unix.PidfdSendSignal(last, unix.SIGTERM, nil, 0); err != nil {
			t.Fatal(err)
		}
		waitEnd(t, last)
		expectEmpty(t, dir)
	}
}

// TestUpgradeHangup: a SIGHUP that comes while another daemon takes over is not lost. The daemon
// that serves then reads the configuration, which changed behind the back of the other.
func TestUpgradeHangup(t *testing.T) {
	for _, fails := range []bool{false, true} {
		dir := socketDir(t)
		file := filepath.Join(dir, "rdsd.toml") // a daemon that reads it waits until somebody writes it
		if err := unix.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
		listen := "listen = [" + strconv.Quote(address(t)) + "]\n"
		write := func(doc string) {
			t.Helper()
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(doc)
				f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		p := start(t, "-config", file, "-socket", filepath.Join(dir, "s"))
		write(listen)
		p.waitReady()
		p.Signal(syscall.SIGUSR2)
		f, err := os.OpenFile(file, os.O_WRONLY, 0) // the successor reads
		if err != nil {
			t.Fatal(err)
		}
		p.Signal(syscall.SIGHUP)
		p.waitFor("waits for the end of the upgrade")
		doc := listen
		if fails {
			doc = "prot = 1\n"
		}
		if _, err := f.WriteString(doc); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if fails {
			p.waitFor(`msg="upgrade failed, this daemon goes on"`)
		} else {
			p.successor()
		}
		write(listen + "[log]\nlevel = \"debug\"\n")
		p.waitFor("msg=reloaded applied=log.level")
	}
}
