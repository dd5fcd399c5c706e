package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// deadSocket leaves a socket file at which nobody listens.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestListen(t *testing.T) {
	path := shortDir(t) + "/s"
	deadSocket(t, path)
	l, err := Listen(path, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closedAll(t, l) })
	if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != 0o640 || l.Path() != path {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if p := s.Peer(); p.PID != os.Getpid() || p.UID != uint32(os.Getuid()) {
		t.Errorf("peer %+v", p)
	}
	accepted := make(chan error)
	go func() {
		for { // the probe of the second Listen below is accepted first
			c, err := l.Accept()
			if err != nil {
				accepted <- err
				return
			}
			c.Close()
		}
	}()
	if _, err := Listen(path, 0o600); !errors.Is(err, syscall.EADDRINUSE) ||
		!strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) || !strings.Contains(err.Error(), path) {
		t.Errorf("second daemon: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) || !errors.Is(err, os.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket file stays: %v", err)
	}
}

// A listener whose file was replaced leaves the new file alone.
func TestListenerClosesOnlyItsOwnFile(t *testing.T) {
	path := shortDir(t) + "/s"
	first, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	second, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the second one's file is gone: %v", err)
	}
}

// TestListenerChangesOwner: the socket file is its owner's. One that owned it does not
// remove it, and a file that was replaced gets no new owner.
func TestListenerChangesOwner(t *testing.T) {
	path := shortDir(t) + "/s"
	first, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f, err := first.l.File()
	if err != nil {
		t.Fatal(err)
	}
	same, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	second, err := Adopt(same.(*net.UnixListener), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Own(first.Inode()+1, 0o640); err != nil || second.Inode() != 0 {
		t.Errorf("owns another file: %v", err)
	}
	if err := second.Own(first.Inode(), 0o640); err != nil {
		t.Error(err)
	}
	first.Leave()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != 0o640 {
		t.Fatalf("%v, %v", fi, err)
	}
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket file stays: %v", err)
	}
}

func TestListenErrors(t *testing.T) {
	dir := shortDir(t)
	if err := os.WriteFile(dir+"/file", []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("unix", dir+"/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	before := openFDs(t)
	for name, tc := range map[string]struct {
		path string
		is   error
		says string
	}{
		"no directory":  {dir + "/none/s", syscall.ENOENT, dir + "/none does not exist"},
		"a file":        {dir + "/file", syscall.EEXIST, "not a socket"},
		"a directory":   {dir, syscall.EEXIST, "not a socket"},
		"other program": {dir + "/stream", syscall.EADDRINUSE, dir + "/stream"},
		"too long":      {dir + "/" + strings.Repeat("x", 108), syscall.ENAMETOOLONG, "a socket's has 1 to 107"},
		"empty":         {"", syscall.ENAMETOOLONG, "path of 0 bytes"},
		"under a file":  {dir + "/file/s", syscall.ENOTDIR, dir + "/file"},
		"abstract":      {"@rdsd", syscall.EINVAL, "abstract"},
	} {
		l, err := Listen(tc.path, 0o600)
		if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, %v; want %v with %q", name, l, err, tc.is, tc.says)
		}
	}
	if b, err := os.ReadFile(dir + "/file"); err != nil || string(b) != "keep" {
		t.Errorf("the file was touched: %q, %v", b, err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

// If several daemons start at the same time at a dead socket, exactly one gets it.
func TestListenRace(t *testing.T) {
	dir := shortDir(t)
	for round := range 20 {
		path := fmt.Sprintf("%s/s%d", dir, round)
		deadSocket(t, path)
		var won atomic.Pointer[Listener]
		var wins, lost atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				l, err := Listen(path, 0o600)
				switch {
				case err == nil:
					wins.Add(1)
					won.Store(l)
				case errors.Is(err, syscall.EADDRINUSE):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if wins.Load() != 1 || lost.Load() != 3 {
			t.Fatalf("round %d: %d daemons got the socket", round, wins.Load())
		}
		if c, err := Dial(t.Context(), path); err != nil {
			t.Errorf("the winner does not answer: %v", err)
		} else {
			c.Close()
		}
		won.Load().Close()
	}
}

func TestDialErrors(t *testing.T) {
	dir := shortDir(t)
	deadSocket(t, dir+"/dead")
	before := openFDs(t)
	for path, is := range map[string]error{
		dir + "/none":                        syscall.ENOENT,
		dir + "/dead":                        syscall.ECONNREFUSED,
		dir + "/" + strings.Repeat("x", 108): syscall.ENAMETOOLONG,
	} {
		if _, err := Dial(t.Context(), path); !errors.Is(err, is) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %v", path, err, is)
		}
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func TestResolveDial(t *testing.T) {
	dir := shortDir(t)
	deadSocket(t, dir+"/rdsd.sock")
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("RDSD_SOCKET", "")
	want := []string{dir + "/rdsd.sock", SystemSocket}
	if os.Geteuid() == 0 {
		want = want[1:]
	}
	if got := DefaultPaths(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("default paths %v, want %v", got, want)
	}

	t.Setenv("RDSD_SOCKET", dir+"/rdsd.sock")
	if got := DefaultPaths(); len(got) != 1 || got[0] != dir+"/rdsd.sock" {
		t.Errorf("with RDSD_SOCKET: %v", got)
	}
	_, err := ResolveDial(t.Context(), "")
	if !errors.Is(err, ErrNoDaemon) || !errors.Is(err, syscall.ENOENT) || !strings.Contains(err.Error(), dir+"/rdsd.sock (left over") {
		t.Errorf("dead daemon: %v", err)
	}
	_, err = ResolveDial(t.Context(), dir+"/none")
	if !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), dir+"/none (no such file)") {
		t.Errorf("no daemon: %v", err)
	}

	l, err := Listen(dir+"/rdsd.sock", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := ResolveDial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ResolveDial(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
