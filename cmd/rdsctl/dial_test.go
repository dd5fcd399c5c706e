package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
)

// server is a control socket. serve handles each session to its end.
func server(t *testing.T, serve func(*ipc.Conn)) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rdsctl") // t.TempDir's are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path = dir + "/s"
	l, err := ipc.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var sessions sync.WaitGroup
	sessions.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			sessions.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		sessions.Wait()
		os.RemoveAll(dir)
	})
	return path
}

// service answers with b, as the daemon does.
func service(t *testing.T, b ctl.Backend) func(*ipc.Conn) {
	return func(c *ipc.Conn) {
		m, err := c.Recv()
		if err != nil {
			return
		}
		hello, ok := m.Body.(*ipc.Hello)
		if !ok || hello.Role != ipc.RoleCtl {
			t.Errorf("the session starts with %+v", m.Body)
			return
		}
		c.Send(m.ID, &ipc.HelloOK{})
		for {
			m, err := c.Recv()
			if err != nil {
				return
			}
			c.SendJSON(m.ID, ctl.Serve(t.Context(), m.Body.(*ipc.Ctl).JSON, ctl.Caller{Admin: true}, b))
		}
	}
}

func runSocket(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, paths: ipc.DefaultPaths(), dial: dial}
	code = a.run(t.Context(), args)
	return code, out.String(), errs.String()
}

// many has so many peers that an answer needs several frames.
type many struct{ backend }

func (m *many) Peers() ([]ctl.PeerInfo, error) {
	one, err := m.backend.Peers()
	var all []ctl.PeerInfo
	for i := range 1000 {
		p := one[0]
		p.Lane = uint8(i % 16)
		all = append(all, p)
	}
	return all, err
}

func TestOverSocket(t *testing.T) {
	path := server(t, service(t, &many{backend{pings: []time.Duration{time.Microsecond}}}))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "--socket", path}, "daemon      rdsd v0.1.0, pid 4711"},
		{[]string{"-socket", path, "sockets"}, "127.0.0.1  4000"},
		{[]string{"peer", "reset", "127.0.0.2", "-socket", path}, "127.0.0.2: 2 connection(s) reset\n"},
		{[]string{"ping", "127.0.0.2", "-c", "3", "-i", "1ms", "-socket", path}, "127.0.0.2: 3 sent, 3 received; min 1µs"},
	} {
		code, stdout, stderr := runSocket(t, tc.args...)
		if code != exitOK || stderr != "" || !strings.Contains(stdout, tc.want) {
			t.Errorf("%v: status %d, %q, %q", tc.args, code, stdout, stderr)
		}
	}
	code, stdout, stderr := runSocket(t, "peers", "-o", "json-v2", "-socket", path)
	if r, err := ctl.Parse([]byte(stdout), ctl.KindPeers); code != exitOK || stderr != "" || err != nil || len(r.Peers) != 1000 {
		t.Errorf("1000 peers: status %d, %v, %q", code, err, stderr)
	}
}

func TestRDSDSocket(t *testing.T) {
	path := server(t, service(t, &backend{}))
	t.Setenv("RDSD_SOCKET", path)
	if code, stdout, stderr := runSocket(t, "peers"); code != exitOK || !strings.Contains(stdout, "127.0.0.2") {
		t.Errorf("status %d, %q, %q", code, stdout, stderr)
	}
}

func TestNoDaemon(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RDSD_SOCKET", "")
	t.Setenv("XDG_RUNTIME_DIR", dir)
	for _, args := range [][]string{{"peers"}, {"ping", "::1"}, {"status"}, {"status", "-offline"}, {"peer", "reset", "::1"}} {
		args = append(args, "-socket", dir+"/none", "-o", "json-v2")
		code, stdout, stderr := runSocket(t, args...)
		if code != exitNoDaemon || !strings.HasPrefix(stderr, "rdsctl: no daemon found: ") || !strings.Contains(stderr, dir+"/none") {
			t.Errorf("%v: status %d, %q", args, code, stderr)
		}
		var e *ctl.Error
		if _, err := ctl.Parse([]byte(stdout), ""); !errors.As(err, &e) || e.Code != ctl.CodeNoDaemon {
			t.Errorf("%v: %v in %s", args, err, stdout)
		}
	}
	if os.Getuid() != 0 {
		if _, err := os.Stat(ipc.SystemSocket); err == nil {
			t.Skip("a system daemon runs here")
		}
		if _, _, stderr := runSocket(t, "peers"); !strings.Contains(stderr, dir+"/rdsd.sock") || !strings.Contains(stderr, ipc.SystemSocket) {
			t.Errorf("the paths tried are not named: %q", stderr)
		}
	}
}

// Daemons that break the protocol give an error that says so, and no hang.
func TestBadDaemons(t *testing.T) {
	accept := func(c *ipc.Conn, then func(id uint32)) {
		for {
			m, err := c.Recv()
			if err != nil {
				return
			}
			if _, hello := m.Body.(*ipc.Hello); hello {
				c.Send(m.ID, &ipc.HelloOK{})
			} else {
				then(m.ID)
			}
		}
	}
	for _, tc := range []struct {
		name  string
		serve func(*ipc.Conn)
		want  string
		code  int
	}{
		{"closes at once", func(c *ipc.Conn) {}, "the daemon is gone", exitFailed},
		{"closes instead of an answer", func(c *ipc.Conn) { accept(c, func(uint32) { c.Close() }) }, "the daemon is gone", exitFailed},
		{"another version", func(c *ipc.Conn) {
			if m, err := c.Recv(); err == nil {
				c.SendErr(m.ID, &ipc.VersionError{Client: ipc.Version, Daemon: 9})
			}
		}, "the daemon version 9", exitVersion},
		{"another schema", func(c *ipc.Conn) {
			accept(c, func(id uint32) { c.SendJSON(id, []byte(`{"schema":"rdsd.v3"}`)) })
		}, `the daemon answers with schema "rdsd.v3", this program reads "rdsd.v2"`, exitVersion},
		{"no JSON", func(c *ipc.Conn) { accept(c, func(id uint32) { c.SendJSON(id, []byte("hi")) }) }, "the daemon's answer is not JSON", exitFailed},
		{"says goodbye", func(c *ipc.Conn) { accept(c, func(uint32) { c.Send(0, &ipc.Goodbye{Text: "shutting down"}) }) }, "shutting down", exitFailed},
		{"stuck at hello", func(c *ipc.Conn) { c.Recv(); c.Recv() }, "the daemon did not answer within 50ms; rdsctl status --offline", exitTimeout},
		{"stuck later", func(c *ipc.Conn) { accept(c, func(uint32) {}) }, "the daemon did not answer within 50ms; rdsctl status --offline", exitTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := server(t, tc.serve)
			timeout := "30s"
			if strings.HasPrefix(tc.name, "stuck") {
				timeout = "50ms"
			}
			code, stdout, stderr := runSocket(t, "peers", "-socket", path, "-timeout", timeout)
			if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.want) {
				t.Errorf("status %d, stdout %q, stderr %q, want %q", code, stdout, stderr, tc.want)
			}
		})
	}
}

// TestAnswerAtLimit: an answer that comes when the time-out has just ended the session is no
// success, because the next call of the session would fail without a reason.
func TestAnswerAtLimit(t *testing.T) {
	c, err := dial(t.Context(), server(t, service(t, &backend{})))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := c.(*session)
	ctx, cancel := context.WithCancel(t.Context())
	err = s.until(ctx, func() error {
		cancel()
		<-s.c.Gone()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
