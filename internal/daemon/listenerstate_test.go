package daemon

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/handover"
	"golang.org/x/sys/unix"
)

// passOn writes ls and returns what a daemon reads that takes over: the descriptors are
// others, of the same open files.
func passOn(t *testing.T, ls *listeners) (*handover.State, *handover.Files) {
	t.Helper()
	w, out := handover.Write(handover.Newest), &handover.Files{}
	ls.handOver(w, out)
	return arrived(t, w, out.All)
}

func arrived(t *testing.T, w *handover.State, fds []int) (*handover.State, *handover.Files) {
	t.Helper()
	r, err := handover.Read(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	in := &handover.Files{}
	for _, fd := range fds {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		in.All = append(in.All, d)
	}
	return r, in
}

// takeOver adopts ls and listens at the same places.
func takeOver(t *testing.T, ls *listeners, path string, at ...netip.AddrPort) (*listeners, []net.Listener) {
	t.Helper()
	r, in := passOn(t, ls)
	next := &listeners{gate: newGate()}
	next.handOver(r, in)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := next.openControl(path, 0o640); err != nil {
		t.Fatal(err)
	}
	var tcp []net.Listener
	for _, a := range at {
		l, err := next.listen(context.Background(), a)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		tcp = append(tcp, l)
	}
	return next, tcp
}

// TestListenersHandedOver: a daemon that takes over has the same sockets, and connections
// that came in between. The control socket's file is removed by the last daemon alone. A
// daemon that gives up leaves all as it was.
func TestListenersHandedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ls := newListeners(nil)
	if err := ls.openControl(path, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := ls.listen(context.Background(), anyPort)
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	for range 3 {
		ls.open()
		ls.shut()
		c, err := net.Dial("unixpacket", path)
		if err != nil {
			t.Fatal(err)
		}
		tc, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}

		gaveUp, tcp := takeOver(t, ls, path, at)
		gaveUp.close()
		tcp[0].Close()

		next, tcp := takeOver(t, ls, path, at)
		ls.leave()
		l.Close()
		if err := next.own(0o640); err != nil {
			t.Error(err)
		}
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o640 {
			t.Fatalf("the control socket's file: %v, %v", fi, err)
		}
		next.open()
		if a, err := tcp[0].Accept(); err != nil {
			t.Error(err)
		} else if a.Close(); a.RemoteAddr().String() != tc.LocalAddr().String() {
			t.Errorf("accepted %v", a.RemoteAddr())
		}
		a, err := next.control.Accept()
		if err != nil {
			t.Fatal(err)
		}
		a.Close()
		c.Close()
		tc.Close()
		ls, l = next, tcp[0]
	}
	ls.close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the control socket's file stays: %v", err)
	}
}

// TestListenersChanged: a daemon that takes over with other settings has the sockets that
// these name. Those of the supervisor stay the supervisor's, and have to be named.
func TestListenersChanged(t *testing.T) {
	dir := t.TempDir()
	s, supervised := supervisedSockets(t, dir+"/s")
	ls := newListeners(s)
	if err := ls.openControl(dir+"/s", 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := ls.listen(context.Background(), supervised)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ls.listen(context.Background(), anyPort)
	if err != nil {
		t.Fatal(err)
	}
	old := second.Addr().(*net.TCPAddr).AddrPort()

	without, tcp := takeOver(t, ls, dir+"/s", old)
	if without.allTaken() == nil {
		t.Error("a socket of the supervisor is not named")
	}
	without.close()
	tcp[0].Close()
	next, tcp := takeOver(t, ls, dir+"/s", supervised, anyPort)
	if err := next.allTaken(); err != nil {
		t.Error(err)
	}
	ls.leave()
	first.Close()
	second.Close()
	if err := next.own(0o640); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", old.String()); err == nil {
		t.Error("listens where the settings do not say so")
	}
	for _, l := range tcp {
		l.Close()
	}
	next.close()
	if fi, err := os.Stat(dir + "/s"); err != nil || fi.Mode().Perm() == 0o640 {
		t.Errorf("the supervisor's file: %v, %v", fi, err)
	}

	ls = newListeners(nil)
	if err := ls.openControl(dir+"/a", 0o600); err != nil {
		t.Fatal(err)
	}
	next, _ = takeOver(t, ls, dir+"/b")
	ls.leave()
	if err := next.own(0o600); err != nil {
		t.Error(err)
	}
	defer next.close()
	if _, err := os.Stat(dir + "/a"); !os.IsNotExist(err) {
		t.Errorf("the file of a control socket that moved stays: %v", err)
	}
}

// TestListenersHostile: what is not a listening socket at its place is refused, and its
// descriptors are closed.
func TestListenersHostile(t *testing.T) {
	dir := t.TempDir()
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(anyPort))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/stream", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	conn, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	file, err := os.Create(dir + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	type entry struct {
		at string
		of interface {
			SyscallConn() (syscall.RawConn, error)
		}
	}
	here := place(tcp.Addr())
	for name, es := range map[string][]entry{
		"good":           {{here, tcp}},
		"elsewhere":      {{"tcp 127.0.0.1:1", tcp}},
		"twice":          {{here, tcp}, {here, tcp}},
		"stream":         {{place(stream.Addr()), stream}},
		"no listener":    {{place(conn.LocalAddr()), conn.(*net.TCPConn)}},
		"no socket":      {{here, tcp}, {"tcp 127.0.0.1:2", file}},
		"no descriptors": {{here, nil}},
	} {
		w, fds := handover.Write(handover.Newest), []int{}
		w.Begin(tagListeners)
		w.Int(new(1), 1)
		w.Count(len(es), 0, 1)
		for i, e := range es {
			w.String(&e.at, 0)
			w.U32(new(uint32(i)))
			w.Bool(new(bool))
			w.U64(new(uint64))
			if e.of == nil {
				continue
			}
			raw, err := e.of.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		w.End()
		r, in := arrived(t, w, fds)
		passed := append([]int(nil), in.All...)
		ls := &listeners{gate: newGate()}
		ls.handOver(r, in)
		in.Close()
		if good := name == "good"; (r.Close() == nil) != good || good != (len(ls.passed) == 1) {
			t.Errorf("%s: %v", name, r.Err())
		}
		ls.close()
		for _, fd := range passed {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
				t.Errorf("%s: descriptor %d stays open", name, fd)
			}
		}
	}
}
