package ipc

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCgroupOfPeer: the cgroup of the process that connected is read while it is there, and never
// that of another process.
func TestCgroupOfPeer(t *testing.T) {
	if path := os.Getenv("RDSD_TEST_DIAL"); path != "" { // the process that ends
		if _, err := net.Dial("unixpacket", path); err != nil {
			t.Fatal(err)
		}
		return
	}
	l := listen(t, false)
	c, err := Dial(t.Context(), l.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Cgroup(); err != nil || !bytes.Equal(got, own) {
		t.Errorf("%q, %v, want %q", got, err, own)
	}
	s.peer.PID = 0
	if _, err := s.Cgroup(); err == nil || !strings.Contains(err.Error(), "hostPID: true") {
		t.Errorf("a process of another pid namespace: %v", err)
	}

	cmd := exec.Command(os.Args[0], "-test.run=^TestCgroupOfPeer$")
	cmd.Env = append(os.Environ(), "RDSD_TEST_DIAL="+l.Path())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	gone, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	gone.peer.PID = os.Getpid() // as if the pid were another process's now
	if got, err := gone.Cgroup(); !errors.Is(err, ErrPeerEnded) {
		t.Errorf("of a process that has ended: %q, %v", got, err)
	}
}

// TestCgroupOfNobody: of a connection of which the kernel names no process there is no cgroup.
// A kernel before Linux 6.5 names none of any. No descriptor of this process is closed for it.
func TestCgroupOfNobody(t *testing.T) {
	u, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: shortDir(t) + "/s", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	before := openFDs(t)
	_, why := option(u, func(fd int) (int, error) { return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD) })
	text, got := (&Conn{c: u, peer: Cred{PID: os.Getpid()}}).Cgroup()
	switch {
	case why == nil:
		t.Error("the kernel names a process")
	case errors.Is(why, unix.ENOPROTOOPT):
		if len(text) == 0 || got != nil {
			t.Errorf("%q, %v", text, got)
		}
	case !errors.Is(got, why):
		t.Errorf("%v, want that of %v", got, why)
	}
	if now := openFDs(t); now != before {
		t.Errorf("%d descriptors, before %d", now, before)
	}
}
