package ipc

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sealed is a memory file of one page that can be imported.
func sealed(t *testing.T) int {
	t.Helper()
	fd, err := unix.MemfdCreate("import-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	return fd
}

// importer is a connection to l, and the daemon's end, which takes imports.
func importer(t *testing.T, l *Listener) (*Conn, *Conn) {
	t.Helper()
	c, err := dialConn(t.Context(), l.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if err := s.TakeImports(); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// TestImportDescriptors: of the descriptors that processes send with Import the daemon gets
// memory files alone. One whose close takes a minute delays its session by the time that the
// session waits for it, and no other user.
func TestImportDescriptors(t *testing.T) {
	if !CanImport() {
		t.Skip("no close_range(2)")
	}
	l := listen(t, false)
	c, s := importer(t, l)
	mem, slow := sealed(t), lingering(t)
	r, _ := pipeFD(t)
	before := openFDs(t)
	for _, tc := range []struct {
		name string
		fds  []int
		says string // "": taken
	}{
		{"memory", []int{mem}, ""},
		{"nothing", nil, ""}, // the session refuses it
		{"a pipe", []int{r}, "not of a memory file"},
		{"two", []int{mem, mem}, "more than one descriptor"},
		{"memory again", []int{mem}, ""},
	} {
		if err := c.Send(7, &Import{Off: 1, Len: 2}, tc.fds...); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err != nil || m.ID != 7 || *m.Body.(*Import) != (Import{Off: 1, Len: 2}) {
			t.Fatalf("%s: %+v, %v", tc.name, m, err)
		}
		switch {
		case tc.says == "" && (m.Refused != nil || len(m.FDs) != len(tc.fds)):
			t.Errorf("%s: %+v", tc.name, m)
		case tc.says != "" && (len(m.FDs) > 0 || !errors.Is(m.Refused, unix.EINVAL) || !strings.Contains(m.Refused.Error(), tc.says)):
			t.Errorf("%s: %+v", tc.name, m)
		}
		m.CloseFDs()
		if after := openFDs(t); after != before {
			t.Errorf("%s: %d descriptors open, %d before", tc.name, after, before)
		}
	}
	// The descriptor whose close takes a minute.
	if err := c.Send(8, &Import{Len: 1}, slow); err != nil {
		t.Fatal(err)
	}
	unix.Close(slow)
	if m, err := s.Recv(); err != nil || len(m.FDs) > 0 || m.Refused == nil {
		t.Errorf("slow: %+v, %v", m, err)
	}
	l.taker.mu.Lock()
	busy := len(l.taker.users)
	l.taker.mu.Unlock()
	if busy != 1 {
		t.Errorf("%d users have a descriptor that is being closed", busy)
	}
	if err := c.Send(9, &GrowSend{}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || m.ID != 9 { // the session goes on
		t.Fatalf("%+v, %v", m, err)
	}
	// The user's next waits for its turn, and then its session ends.
	if err := c.Send(10, &Import{Len: 1}, mem); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("beside the slow one: %+v, %v", m, err)
	}
	other, theirs := importer(t, l)
	theirs.CountFor(theirs.peer.UID + 1) // another user
	if err := other.Send(1, &Import{Len: 1}, mem); err != nil {
		t.Fatal(err)
	}
	m, err := theirs.Recv()
	if err != nil || m.Refused != nil || len(m.FDs) != 1 {
		t.Fatalf("another user: %+v, %v", m, err)
	}
	m.CloseFDs()
}

// Before TakeImports, and with any other frame, a descriptor ends the connection as ever.
func TestImportOnlyWhereAllowed(t *testing.T) {
	l := listen(t, true)
	mem := sealed(t)
	c, s := importer(t, l)
	if err := c.Send(1, &GrowSend{}, mem); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); !errors.Is(err, ErrProtocol) {
		t.Errorf("with GrowSend: %+v, %v", m, err)
	}
	c, s = importer(t, l)
	s.takes = false
	if err := c.Send(1, &Import{Len: 1}, mem); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); !errors.Is(err, ErrProtocol) {
		t.Errorf("not allowed: %+v, %v", m, err)
	}
	c, s = importer(t, l)
	if _, _, err := c.c.WriteMsgUnix([]byte{23, 0, 0, 0, 1}, unix.UnixRights(mem), nil); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); !errors.Is(err, ErrProtocol) {
		t.Errorf("half a frame: %+v, %v", m, err)
	}
}

// A hand must not allocate, see hand.
func TestHandAllocates(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	mem := sealed(t)
	frame := AppendFrame(nil, 1, &Import{Len: 1})
	h := &hand{from: pair[1], to: pair[0], report: -1}
	rights := unix.UnixRights(mem)
	n := testing.AllocsPerRun(100, func() {
		if err := unix.Sendmsg(pair[0], frame, rights, nil, 0); err != nil {
			t.Fatal(err)
		}
		h.receive() // it reports to pair[0], which pair[1] reads
		drain(pair[1])
	})
	if h.out.got != 1 || h.out.seals < 0 {
		t.Errorf("%+v", h.out)
	}
	if base := testing.AllocsPerRun(100, func() { _ = unix.Sendmsg(pair[0], frame, rights, nil, 0); drain(pair[1]) }); n > base {
		t.Errorf("%v allocations, of which %v are the test's", n, base)
	}
}

// TestHandTable: a hand has its own two descriptors, stderr and those of the runtime's poller. The
// scheduler ends the program if it misses those on the hand's thread.
func TestHandTable(t *testing.T) {
	if !CanImport() {
		t.Skip("no close_range(2)")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	h := &hand{from: pair[1], to: pair[0]}
	if h.keep, err = kept(h.from, h.to); err != nil {
		t.Fatal(err)
	}
	var open [1024]bool
	errno := make(chan unix.Errno)
	go ownThread(func() {
		e := ownTable()
		h.closeOthers()
		for fd := range open {
			_, _, e := unix.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFD, 0)
			open[fd] = e == 0
		}
		errno <- e
	})
	if e := <-errno; e != 0 {
		t.Fatal(e)
	}
	for fd, is := range open {
		if want := fd == h.from || fd == h.to || fd == unix.Stderr || isPollDescriptor(uintptr(fd)); is != want {
			t.Errorf("descriptor %d: open %v, want %v", fd, is, want)
		}
	}
}

// drain reads what is there.
func drain(fd int) {
	for {
		if _, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0); errno != 0 {
			return
		}
	}
}
