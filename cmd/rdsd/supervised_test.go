package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// supervisor does what systemd does for a daemon: it opens the sockets and reads the
// notices.
type supervisor struct {
	files []*os.File
	env   []string
	dir   string
	port  string
	heard chan string
}

func supervise(t *testing.T) *supervisor {
	t.Helper()
	s := &supervisor{dir: socketDir(t), heard: make(chan string, 1000)}
	control, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.dir + "/s", Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	control.SetUnlinkOnClose(false)
	peers, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s.port = strconv.Itoa(peers.Addr().(*net.TCPAddr).Port)
	for _, l := range []interface{ File() (*os.File, error) }{control, peers} {
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		s.files = append(s.files, f)
		t.Cleanup(func() { f.Close() })
	}
	control.Close()
	peers.Close()
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.dir + "/n", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { notices.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := notices.Read(b)
			if err != nil {
				close(s.heard)
				return
			}
			s.heard <- string(b[:n])
		}
	}()
	s.env = []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=control:rds", "NOTIFY_SOCKET=" + s.dir + "/n", "WATCHDOG_USEC=200000", "WATCHDOG_PID="}
	return s
}

// hear waits for a notice that begins with want, and returns it.
func (s *supervisor) hear(t *testing.T, want string) string {
	t.Helper()
	limit := time.After(processTimeout)
	for {
		select {
		case got := <-s.heard:
			if strings.HasPrefix(got, want) {
				return got
			}
		case <-limit:
			t.Fatalf("was not told %q", want)
		}
	}
}

// TestSupervised: a daemon on sockets that systemd opened. It notifies systemd when it is
// ready, reloads, lives and stops. After it was killed no client is refused, because the
// sockets stay.
func TestSupervised(t *testing.T) {
	s := supervise(t)
	args := []string{"-socket", s.dir + "/s", "-port", s.port}
	p := startWith(t, s.env, s.files, args...).waitReady()
	s.hear(t, "READY=1\nSTATUS=serving [127.0.0.1] port "+s.port)
	s.hear(t, "WATCHDOG=1")
	p.Signal(syscall.SIGHUP)
	s.hear(t, "RELOADING=1\nMONOTONIC_USEC=")
	s.hear(t, "READY=1")

	p.Signal(syscall.SIGKILL)
	p.wait()
	var conns []net.Conn
	for _, a := range []net.Addr{&net.UnixAddr{Name: s.dir + "/s", Net: "unixpacket"}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: atoi(t, s.port)}} {
		c, err := net.Dial(a.Network(), a.String())
		if err != nil {
			t.Fatalf("while no daemon runs: %v", err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	p = startWith(t, s.env, s.files, args...).waitReady()
	// The daemon serves the clients that waited: it answers garbage by closing the
	// connection.
	for _, c := range conns {
		if _, err := c.Write(bytes.Repeat([]byte{0xff}, 64)); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(processTimeout))
		for b := make([]byte, 4096); ; {
			if _, err := c.Read(b); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%v is not served", c.RemoteAddr())
			} else if err != nil {
				break
			}
		}
	}
	p.Signal(syscall.SIGTERM)
	s.hear(t, "STOPPING=1")
	if code := p.wait(); code != exitOK {
		t.Errorf("status %d", code)
	}
	if _, err := os.Stat(s.dir + "/s"); err != nil {
		t.Errorf("the control socket's file is systemd's: %v", err)
	}

	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"-socket", s.dir + "/s", "-port", s.port, "-listen", "127.0.0.2"}, "systemd passed sockets that the settings socket, listen and port do not name: 127.0.0.1:" + s.port},
		{[]string{"-socket", s.dir + "/other", "-port", s.port}, "systemd passed sockets that the settings socket, listen and port do not name: " + s.dir + "/s"},
	} {
		p := startWith(t, s.env, s.files, tc.args...)
		if code := p.wait(); code != exitFailed || !strings.Contains(p.output(), tc.want) {
			t.Errorf("%v: status %d, %s", tc.args, code, p.output())
		}
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
