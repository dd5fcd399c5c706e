package ipc

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shortDir is a directory whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ipc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// rawPair returns two connected sockets.
func rawPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: shortDir(t) + "/s", Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	if b, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// connPair returns both ends of a connection. A wait that does not end fails the test.
func connPair(t *testing.T) (a, b *Conn) {
	t.Helper()
	ra, rb := rawPair(t)
	return wrap(t, ra), wrap(t, rb)
}

func wrap(t *testing.T, raw *net.UnixConn) *Conn {
	t.Helper()
	c, err := NewConn(raw)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	return c
}

// openFDs counts this process's descriptors. Go's runtime opens two of its own together
// with the first descriptor that can be polled.
func openFDs(t *testing.T) int {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

func pipeFD(t *testing.T) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
	return p[0], p[1]
}

func TestConnFrames(t *testing.T) {
	a, b := connPair(t)
	for _, m := range samples() {
		if err := a.Send(9, m); err != nil {
			t.Fatal(err)
		}
		got, err := b.Recv()
		if err != nil || got.ID != 9 || got.Body.Type() != m.Type() || len(got.FDs) != 0 {
			t.Fatalf("%v: %+v, %v", m.Type(), got, err)
		}
	}
	if p := a.Peer(); p.PID != os.Getpid() || p.UID != uint32(os.Getuid()) || p.GID != uint32(os.Getgid()) {
		t.Errorf("peer %+v", p)
	}
	a.Close()
	if m, err := b.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, %v", m, err)
	}
	if err := b.Send(1, &OK{}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("send after the end: %v", err)
	}
	if _, err := a.Recv(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("receive on a closed connection: %v", err)
	}
}

func TestConnDescriptors(t *testing.T) {
	a, b := connPair(t)
	r, w := pipeFD(t)
	before := openFDs(t)
	if err := a.Send(1, &HelloOK{}, r, w, r); err != nil {
		t.Fatal(err)
	}
	m, err := b.Recv()
	if err != nil || len(m.FDs) != 3 {
		t.Fatal(m, err)
	}
	for _, fd := range m.FDs {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %#x, %v; want close-on-exec", fd, flags, err)
		}
	}
	unix.Write(m.FDs[1], []byte("x"))
	var buf [1]byte
	if n, err := unix.Read(r, buf[:]); n != 1 || err != nil {
		t.Error("the descriptor is not the pipe's", err)
	}
	m.CloseFDs()
	m.CloseFDs() // has nothing left to close
	many := make([]int, MaxFDs)
	for i := range many {
		many[i] = r
	}
	if err := a.Send(1, &HelloOK{}, many...); err != nil {
		t.Fatal(err)
	}
	if m, err = b.Recv(); err != nil || len(m.FDs) != MaxFDs {
		t.Fatal(m, err)
	}
	m.CloseFDs()
	if err := a.Send(1, &HelloOK{}, append(many, r)...); !errors.Is(err, syscall.E2BIG) {
		t.Errorf("%d descriptors: %v", MaxFDs+1, err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

// Unexpected descriptors are closed, and the connection cannot be used any more.
func TestConnUnwantedDescriptors(t *testing.T) {
	for name, m := range map[string]Body{
		"with a request":        &Bind{},
		"with Hello":            &Hello{},
		"two with one's answer": &AllocOK{},
	} {
		a, b := connPair(t)
		r, w := pipeFD(t)
		before := openFDs(t)
		if err := a.Send(1, m, r, w); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Recv(); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "2 descriptors") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if after := openFDs(t); after != before {
			t.Errorf("%s: %d descriptors open, %d before", name, after, before)
		}
	}
}

func TestConnLostDescriptors(t *testing.T) {
	a, b := connPair(t)
	r, _ := pipeFD(t)
	if err := a.Send(1, &HelloOK{}, r, r, r, r); err != nil {
		t.Fatal(err)
	}
	before := openFDs(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 5
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	_, err := b.Recv()
	unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	if !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("%v, want EMFILE and its cure", err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func TestConnGarbage(t *testing.T) {
	r, _ := pipeFD(t)
	for name, tc := range map[string]struct {
		b    []byte
		is   error
		says string
	}{
		"garbage":    {[]byte("GET / HTTP/1.1\r\n\r\n"), ErrProtocol, "unknown frame"},
		"half frame": {AppendFrame(nil, 1, &Hello{})[:20], ErrProtocol, "too short"},
		"one byte":   {[]byte{1}, ErrProtocol, "frame of 1 bytes"},
		"empty":      {nil, io.EOF, ""},
		"too long":   {make([]byte, MaxFrame+1), ErrProtocol, "longer than"},
	} {
		for _, oob := range [][]byte{nil, unix.UnixRights(r, r)} {
			if len(tc.b) == 0 && oob != nil {
				continue // net adds a byte then
			}
			raw, end := rawPair(t)
			before := openFDs(t)
			b := wrap(t, end)
			if _, _, err := raw.WriteMsgUnix(tc.b, oob, nil); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m, err := b.Recv(); !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %+v, %v; want %v with %q", name, m, err, tc.is, tc.says)
			}
			if after := openFDs(t); after != before {
				t.Errorf("%s: %d descriptors open, %d before", name, after, before)
			}
		}
	}
}

// TestConnDeadlines: a Recv whose deadline is set to the past ends and has read nothing. A
// Send in progress takes over a shorter time, and later ones have the usual time again.
func TestConnDeadlines(t *testing.T) {
	a, b := connPair(t)
	if err := a.Send(7, &Addrs{}); err != nil {
		t.Fatal(err)
	}
	b.SetReadDeadline(time.Unix(1, 0))
	if m, err := b.Recv(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%+v, %v", m, err)
	}
	b.SetReadDeadline(time.Time{})
	if m, err := b.Recv(); err != nil || m.ID != 7 {
		t.Errorf("%+v, %v", m, err)
	}
	ended := make(chan error)
	go func() {
		var err error
		for err == nil {
			err = a.Send(8, &Addrs{})
		}
		ended <- err
	}()
	time.Sleep(10 * time.Millisecond)
	start := time.Now()
	a.SetSendTimeout(20 * time.Millisecond)
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) > sendTimeout/2 {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	a.SetSendTimeout(0)
	go func() {
		time.Sleep(100 * time.Millisecond)
		for {
			if _, err := b.Recv(); err != nil {
				return
			}
		}
	}()
	if err := a.Send(9, &Addrs{}); err != nil {
		t.Error(err)
	}
}

// TestSendTried: a Send for which there is room does not fail because its time has passed before the
// first attempt, nor does a wait for what was received. A machine under load can let a thread
// stand for longer than a session has in a planned restart.
func TestSendTried(t *testing.T) {
	a, b := connPair(t)
	a.SetSendTimeout(1) // has passed before anything can be sent
	for id := range uint32(100) {
		if err := a.AwaitReceived(); err != nil {
			t.Fatalf("frame %d: wait: %v", id, err)
		}
		if err := a.Send(id, &Addrs{}); err != nil {
			t.Fatalf("frame %d: %v", id, err)
		}
		if m, err := b.Recv(); err != nil || m.ID != id {
			t.Fatalf("frame %d: %+v, %v", id, m, err)
		}
	}
	for err := error(nil); !errors.Is(err, os.ErrDeadlineExceeded); {
		if err = a.Send(0, &Addrs{}); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if err := a.AwaitReceived(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wait beside frames that nobody reads: %v", err)
	}
}

// TestConnSlowReader: a process that reads some parts of an answer whenever the daemon is about to
// give it up has no more time for the whole answer than one that reads nothing.
func TestConnSlowReader(t *testing.T) {
	a, b := connPair(t)
	a.SetSendTimeout(100 * time.Millisecond)
	ended := make(chan error, 1)
	go func() { ended <- a.SendJSON(1, make([]byte, MaxCtl)) }()
	for {
		select {
		case err := <-ended:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
		b.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // the queue may have less
		for range 6 {                                            // most of what the queue has
			if _, err := b.Recv(); errors.Is(err, os.ErrDeadlineExceeded) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestConnSilence(t *testing.T) {
	_, b := connPair(t)
	b.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if m, err := b.Recv(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, %v", m, err)
	}
}

// Frames that the other side sent before it closed are received, even if that side did not
// read.
func TestConnLastWords(t *testing.T) {
	a, b := connPair(t)
	if err := b.Send(1, &OK{}); err != nil { // never read: the close resets
		t.Fatal(err)
	}
	if err := a.Send(0, &Goodbye{Text: "enough"}); err != nil {
		t.Fatal(err)
	}
	a.Close()
	m, err := b.Recv()
	if err != nil || m.Body.(*Goodbye).Text != "enough" {
		t.Fatal(m, err)
	}
	if _, err := b.Recv(); !isGone(err) {
		t.Error(err)
	}
}

func TestConnTooLong(t *testing.T) {
	a, _ := connPair(t)
	if err := a.Send(1, &Ctl{JSON: make([]byte, MaxFrame)}); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("long frame: %v", err)
	}
	if err := a.SendJSON(1, make([]byte, MaxCtl+1)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("long answer: %v", err)
	}
}

func TestSendErr(t *testing.T) {
	a, b := connPair(t)
	for _, tc := range []struct {
		err   error
		errno syscall.Errno
	}{
		{&os.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, syscall.EACCES},
		{errors.New("odd"), syscall.EIO},
		{&VersionError{Client: 2, Daemon: 1}, syscall.EPROTONOSUPPORT},
	} {
		if err := a.SendErr(3, tc.err); err != nil {
			t.Fatal(err)
		}
		m, err := b.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e := m.Body.(*Err); !errors.Is(e, tc.errno) || e.Error() != tc.err.Error() || m.ID != 3 {
			t.Errorf("%v arrived as %v, errno %d", tc.err, e, e.Errno)
		}
	}
	if s := (&Err{Errno: uint32(syscall.EBUSY)}).Error(); s != syscall.EBUSY.Error() {
		t.Errorf("error without a text: %q", s)
	}
}
