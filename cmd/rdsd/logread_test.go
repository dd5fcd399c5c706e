package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/test/child"
	"golang.org/x/sys/unix"
)

// fullPipe is a pipe without room that nobody reads. The writing end is in blocking mode, as that
// of a supervisor is.
func fullPipe(t *testing.T) (w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
	t.Cleanup(func() { r.Close(); w.Close() })
	own, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fds[1]), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(own)
	for n := 4096; n > 0; n /= 2 {
		for err == nil {
			_, err = unix.Write(own, make([]byte, n))
		}
		if !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		err = nil
	}
	return w
}

// TestLogNotRead: a daemon whose standard error nobody reads starts, reloads, hands over and
// ends, each of its processes does, and so does a program that fails.
func TestLogNotRead(t *testing.T) {
	s := supervise(t)
	w := fullPipe(t)
	run := func(args ...string) *child.Process {
		t.Helper()
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = child.Env(append(s.env, runsMain+"=1")...)
		cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = s.files, w, w
		p, err := child.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p
	}
	if p := run("-port", "none"); !p.Wait(processTimeout) || p.Code() != exitUsage {
		t.Errorf("wrong usage: status %d", p.Code())
	}
	p := run("-socket", s.dir+"/s", "-port", s.port)
	s.hear(t, "READY=1")
	for range 20 {
		p.Signal(syscall.SIGHUP)
		s.hear(t, "RELOADING=1")
		s.hear(t, "READY=1")
	}
	p.Signal(syscall.SIGUSR2)
	next := atoi(t, strings.TrimPrefix(s.hear(t, "MAINPID="), "MAINPID="))
	pidfd, err := unix.PidfdOpen(next, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if !p.Wait(processTimeout) || p.Code() != exitOK {
		t.Errorf("the daemon that has handed over: status %d", p.Code())
	}
	s.hear(t, "READY=1")
	if err := unix.PidfdSendSignal(pidfd, unix.SIGTERM, nil, 0); err != nil {
		t.Fatal(err)
	}
	waitEnd(t, pidfd)
}
