package ipc

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lingering is a TCP connection whose last close takes a minute, because its data is never
// read.
func lingering(t *testing.T) int {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}); err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fd, true)
	for b := make([]byte, 1<<16); err == nil; {
		_, err = unix.Write(fd, b)
	}
	return fd
}

// listen makes a control socket. If old, the kernel lets descriptors through.
func listen(t *testing.T, old bool) *Listener {
	t.Helper()
	l, err := Listen(shortDir(t)+"/s", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		closedAll(t, l)
	})
	if old {
		raw, err := l.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1) })
	}
	return l
}

// closedAll waits until l has closed everything. Otherwise a closer's thread would close
// descriptors that the next test counts.
func closedAll(t *testing.T, l *Listener) {
	t.Helper()
	left := func() int {
		l.closer.mu.Lock()
		defer l.closer.mu.Unlock()
		return l.closer.threads
	}
	for range 2000 {
		if left() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	t.Error("the listener's connections are still being closed")
}

// A kernel that can refuse descriptors for the daemon does so. Whether it can or not, the
// daemon gets none.
func TestDescriptorsRefused(t *testing.T) {
	for _, old := range []bool{false, true} {
		l := listen(t, old)
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
		s.SetReadDeadline(time.Now().Add(2 * time.Minute))
		r, _ := pipeFD(t)
		before := openFDs(t)
		refuses := false
		raw, _ := s.c.SyscallConn()
		raw.Control(func(fd uintptr) {
			v, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS)
			refuses = err == nil && v == 0
		})
		err = c.conn.Send(1, &GrowSend{}, r, r)
		if refuses {
			if !errors.Is(err, unix.EPERM) {
				t.Errorf("sent: %v, want EPERM", err)
			}
			err = c.conn.Send(1, &GrowSend{})
		}
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		switch {
		case refuses && (err != nil || m.Body.Type() != (&GrowSend{}).Type()):
			t.Errorf("without descriptors: %+v, %v", m, err)
		case !refuses && (!errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "with descriptors")):
			t.Errorf("with descriptors: %+v, %v", m, err)
		}
		if after := openFDs(t); after != before {
			t.Errorf("%d descriptors open, %d before", after, before)
		}
	}
}

// TestLingeringDescriptors: descriptors whose close takes a minute delay neither the close
// of their connections nor the next process. In the end all of them are closed. Some of
// their frames were read, some were not.
func TestLingeringDescriptors(t *testing.T) {
	l := listen(t, true)
	before := openFDs(t)
	const many = 20
	for i := range many {
		raw, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: l.Path(), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		fd := lingering(t)
		if _, _, err := raw.WriteMsgUnix(AppendFrame(nil, 1, &GrowSend{}), unix.UnixRights(fd), nil); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		raw.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() {
			if i%2 == 0 {
				s.SetReadDeadline(time.Now().Add(2 * time.Minute))
				if _, err := s.Recv(); !errors.Is(err, ErrProtocol) {
					t.Errorf("%v", err)
				}
			}
			closed <- s.Close()
		}()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second): // half of what the close of a descriptor takes
			t.Fatalf("connection %d: the close waits for what was sent along", i)
		}
	}
	l.closer.mu.Lock()
	if l.closer.threads > 1 {
		t.Errorf("%d threads close for one user", l.closer.threads)
	}
	l.closer.mu.Unlock()
	closedAll(t, l)
	if after := openFDs(t); after > before+many { // the far ends are the test's
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}
