package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/test/loopback"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/embedded"
)

// start starts a daemon that ends with the test.
func start(t *testing.T, o embedded.Options) *embedded.Daemon {
	t.Helper()
	d, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// addrs returns n loopback addresses that no other test uses.
func addrs(t *testing.T, n int) []netip.Addr {
	t.Helper()
	net, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = net.Close() })
	var out []netip.Addr
	for i := range n {
		out = append(out, net.At(i+1))
	}
	return out
}

// bind opens a client of d and binds a socket at a.
func bind(t *testing.T, d *embedded.Daemon, a netip.Addr) *rds.Socket {
	t.Helper()
	c, err := rds.Open(t.Context(), rds.Options{Daemon: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := c.Bind(netip.AddrPortFrom(a, 0))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTwo has two daemons in one process that talk over TCP.
func TestTwo(t *testing.T) {
	at := addrs(t, 2)
	a := bind(t, start(t, embedded.Options{Listen: at[:1]}), at[0])
	b := bind(t, start(t, embedded.Options{Listen: at[1:]}), at[1])
	if _, err := a.SendTo([]byte("hello"), b.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 16)
	n, from, err := b.RecvFrom(p)
	if err != nil || string(p[:n]) != "hello" || from != a.LocalAddrPort() {
		t.Errorf("got %q from %v, %v", p[:n], from, err)
	}
}

// TestClose checks what is left when a daemon has ended: nothing of its files, and clients that know.
func TestClose(t *testing.T) {
	at := addrs(t, 1)
	d := start(t, embedded.Options{Listen: at})
	s := bind(t, d, at[0])
	dir := filepath.Dir(d.Socket())
	if i, err := os.Stat(dir); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("directory of the control socket: %v, %v", i, err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	<-d.Done()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the control socket is still there: %v", err)
	}
	m := rds.Received{Payload: make([]byte, 1)}
	if err := s.Recv(t.Context(), &m); !errors.Is(err, rds.ErrDaemonGone) {
		t.Errorf("a receive after the end: %v", err)
	}
	if _, err := rds.Open(t.Context(), rds.Options{Daemon: d}); !errors.Is(err, rds.ErrNoDaemon) {
		t.Errorf("Open after the end: %v", err)
	}
}

// TestControl has a process come in by the control socket that the program named. It may not
// replace the daemon.
func TestControl(t *testing.T) {
	at := addrs(t, 1)
	path := filepath.Join(t.TempDir(), "s")
	d := start(t, embedded.Options{Listen: at, Socket: path})
	if d.Socket() != path {
		t.Errorf("control socket at %s, want %s", d.Socket(), path)
	}
	c, err := ipc.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.Call(&ipc.Hello{Role: ipc.RoleCtl}, nil); err != nil {
		t.Fatal(err)
	}
	req, err := json.Marshal(ctl.Request{Schema: ctl.Schema, Kind: ctl.KindUpgrade, Do: ctl.DoBegin})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.CallJSON(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ctl.Parse(answer, ctl.KindUpgrade); err == nil || !strings.Contains(err.Error(), "this daemon is part of another program") {
		t.Errorf("an upgrade: %v", err)
	}
}

// TestErrors checks that each wrong option is named, and leaves no file.
func TestErrors(t *testing.T) {
	at := addrs(t, 1)
	first := start(t, embedded.Options{Listen: at})
	t.Setenv("TMPDIR", t.TempDir())
	for name, x := range map[string]struct {
		o    embedded.Options
		want string
	}{
		"unknown":      {embedded.Options{Set: map[string]string{"prot": "1"}}, `unknown key "prot"`},
		"value":        {embedded.Options{Set: map[string]string{"port": "x"}}, "port: "},
		"twice":        {embedded.Options{Set: map[string]string{"listen": "127.0.0.1"}}, "setting listen is in Options.Set, and Options has a field"},
		"no effect":    {embedded.Options{Set: map[string]string{"log.level": "debug"}}, "log.level has no effect"},
		"not loopback": {embedded.Options{Listen: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Set: map[string]string{"tls.mode": "required"}}, "tls"},
		"in use":       {embedded.Options{Listen: at}, "address already in use"},
		"socket":       {embedded.Options{Listen: at, Socket: first.Socket()}, first.Socket()},
		"no directory": {embedded.Options{Socket: "/nonexistent/s"}, "directory /nonexistent does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := embedded.Start(x.o)
			if err == nil {
				_ = d.Close()
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), "rds/embedded: ") || !strings.Contains(err.Error(), x.want) {
				t.Errorf("error %q, want one with %q", err, x.want)
			}
		})
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
	if _, err := rds.Open(context.Background(), rds.Options{Daemon: first, Socket: "x"}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Open with a Daemon and a Socket: %v", err)
	}
}
