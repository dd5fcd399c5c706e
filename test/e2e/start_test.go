package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rds"
)

// TestStartErrors checks that a daemon that cannot start says why and leaves nothing behind.
func TestStartErrors(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		dir := t.TempDir()
		file := filepath.Join(dir, "rdsd.toml")
		if err := os.WriteFile(file, []byte("port = 18634\n\n[peers]\nalow = [\"10.0.0.0/8\"]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		other := newAddress(t).String()
		for _, tc := range []struct {
			name string
			args []string
			code int
			want []string
		}{
			{"address in use", []string{"-socket", dir + "/o", "-listen", h.addr().String()}, 1,
				[]string{h.addr().String() + ":18634", "address already in use", "to cure it", "-listen"}},
			{"path of a live daemon", []string{"-socket", h.sock, "-listen", other}, 1,
				[]string{h.sock, "(pid " + strconv.Itoa(h.pid()) + ") is running there", "-take-over", "--socket"}},
			{"unknown flag", []string{"-lisen", other}, 2, []string{"-lisen", "there are: ", "-listen"}},
			{"unknown key", []string{"-config", file}, 2, []string{file + ":4:1", `"peers.alow"`, "allowed here: allow"}},
			{"not loopback", []string{"-socket", dir + "/o", "-listen", "192.0.2.1"}, 2, []string{"192.0.2.1", "peers.allow", "192.0.2.0/24"}},
		} {
			p := startProcess(t, nil, program("rdsd"), tc.args...)
			if code := p.wait(); code != tc.code {
				t.Errorf("%s: status %d, want %d", tc.name, code, tc.code)
			}
			for _, w := range tc.want {
				if !strings.Contains(p.log(), w) {
					t.Errorf("%s: no %q in\n%s", tc.name, w, p.log())
				}
			}
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 {
			t.Errorf("left behind: %v (%v)", left, err)
		}
		h.bind(h.open(), 7) // the running daemon still works
	})
}

// TestStartAfterKill starts a daemon after one that was killed. It must take over the files, the
// port, and the ports of the clients.
func TestStartAfterKill(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		c := h.open()
		h.bind(c, 4000)
		h.restart()
		<-c.Done()
		if err := c.Err(); !errors.Is(err, rds.ErrDaemonGone) {
			t.Errorf("client of the dead daemon: %v", err)
		}
		h.bind(h.open(), 4000)
	})
}

func TestNoDaemon(t *testing.T) {
	isolated(t, func(t *testing.T) {
		dir := t.TempDir()
		dead := dir + "/dead"
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: dead, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		for _, tc := range []struct{ env, path, want string }{
			{"RDSD_SOCKET", dir + "/none", "none (no such file)"},
			{"RDSD_SOCKET", dead, "dead (left over from a daemon that ended)"},
		} {
			t.Setenv(tc.env, tc.path)
			_, err := rds.Open(t.Context(), rds.Options{})
			if !errors.Is(err, rds.ErrNoDaemon) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v", tc.path, err)
			}
			p := startProcess(t, []string{tc.env + "=" + tc.path}, program("rdsctl"), "status")
			if code := p.wait(); code != 3 || !strings.Contains(p.log(), tc.want) || p.stdout() != "" {
				t.Errorf("rdsctl: status %d, %q, %q", code, p.stdout(), p.log())
			}
		}
		t.Setenv("RDSD_SOCKET", "")
		if os.Geteuid() != 0 {
			t.Setenv("XDG_RUNTIME_DIR", dir)
		}
		if _, err := os.Stat(ipc.SystemSocket); err == nil {
			t.Log("a daemon of the system is there")
			return
		}
		_, err = rds.Open(t.Context(), rds.Options{})
		if !errors.Is(err, rds.ErrNoDaemon) || !strings.Contains(err.Error(), ipc.SystemSocket) {
			t.Errorf("no default: %v", err)
		}
	})
}

// dialRaw connects to the control socket without the protocol.
func (h *host) dialRaw() *net.UnixConn {
	h.t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.sock, Net: "unixpacket"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// TestVersions checks that a client of another version learns that, in a form that both versions
// can read.
func TestVersions(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		h.expected = []string{"version"}
		for _, version := range []uint32{ipc.Version + 1, 99} {
			raw := h.dialRaw()
			frame := ipc.AppendFrame(nil, 7, &ipc.Hello{Version: version, Role: ipc.RoleClient, Name: "future"})
			if _, err := raw.Write(frame); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, ipc.MaxFrame)
			n, err := raw.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			id, body, err := ipc.ParseFrame(buf[:n])
			e, is := body.(*ipc.Err)
			if err != nil || !is || id != 7 || syscall.Errno(e.Errno) != syscall.EPROTONOSUPPORT || !strings.Contains(e.Text, "version") {
				t.Errorf("version %d: %v %+v %v", version, id, body, err)
			}
		}
	})
}

// TestOtherDaemonVersion checks that a client distinguishes a daemon of another version from a
// broken one.
func TestOtherDaemonVersion(t *testing.T) {
	isolated(t, func(t *testing.T) {
		path := t.TempDir() + "/s"
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		done := make(chan error, 1)
		go func() {
			c, err := l.AcceptUnix()
			if err != nil {
				done <- err
				return
			}
			defer c.Close()
			buf := make([]byte, ipc.MaxFrame)
			n, err := c.Read(buf)
			if err == nil {
				id := binary.LittleEndian.Uint32(buf[4:n])
				err := &ipc.VersionError{Client: ipc.Version, Daemon: 9}
				_, werr := c.Write(ipc.AppendFrame(nil, id, &ipc.Err{Errno: uint32(syscall.EPROTONOSUPPORT), Text: err.Error()}))
				done <- werr
				return
			}
			done <- err
		}()
		_, err = rds.Open(context.Background(), rds.Options{Socket: path})
		if !errors.Is(err, rds.ErrVersion) || !strings.Contains(err.Error(), "daemon version 9") {
			t.Errorf("open: %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestTerminate sends SIGTERM under load. The daemon must end its connections properly, exit
// with 0 and remove its files. Its clients must get the reason.
func TestTerminate(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		a := newAudit()
		src, dst := hosts[0].bind(hosts[0].open(), 0), hosts[1].bind(hosts[1].open(), 0)
		ended := make(chan error, 2)
		go func() { ended <- a.take(dst) }()
		go func() {
			buf := make([]byte, 1000)
			for {
				if err := a.send(src, dst.LocalAddrPort(), buf); err != nil {
					ended <- err
					return
				}
			}
		}()
		eventually(t, "traffic", func() error {
			if a.sums().arrived < 1000 {
				return errors.New("too little")
			}
			return nil
		})
		hosts[0].stop()
		if err := <-ended; !errors.Is(err, rds.ErrDaemonGone) || !strings.Contains(err.Error(), "shutting down") {
			t.Errorf("sender: %v", err)
		}
		hosts[0].start() // so that its end is checked again
		dst.Close()
		if err := <-ended; !errors.Is(err, rds.ErrClosed) {
			t.Errorf("receiver: %v", err)
		}
		a.check(t)
	})
}
