package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
)

// nobody is an ordinary user, which every system has.
const nobody = 65534

// roleUser is a client process that does what the lines of its standard input say. It answers
// each with a line.
const roleUser = "user"

func userMain() int {
	c, err := rds.Open(context.Background(), rds.Options{Socket: os.Getenv("E2E_SOCKET")})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("attached")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var at string
		var size int
		var err error
		switch line := in.Text(); {
		case scanned(line, "bind %s", &at):
			var s *rds.Socket
			if s, err = c.Bind(netip.MustParseAddrPort(at)); err == nil {
				fmt.Println("bound", s.LocalAddrPort())
				continue
			}
		case scanned(line, "alloc %d", &size):
			_, err = c.Alloc(size)
		default:
			err = fmt.Errorf("what is %q", line)
		}
		switch {
		case errors.Is(err, syscall.EACCES):
			fmt.Println("EACCES", err)
		case errors.Is(err, syscall.ENOBUFS):
			fmt.Println("ENOBUFS", err)
		case err != nil:
			fmt.Println("failed", err)
		default:
			fmt.Println("done")
		}
	}
	return 0
}

func scanned(line, format string, to any) bool {
	n, err := fmt.Sscanf(line, format, to)
	return n == 1 && err == nil
}

// user is a process of another user.
type user struct {
	*process
	in    io.WriteCloser
	lines int // how many lines of its output were read
}

// othersBinary returns a copy of this test binary that other users may run.
func othersBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(os.Getenv(envBin), "client")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	mine := fmt.Sprintf("%s.%d", path, os.Getpid()) // tests run at the same time
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(mine, b, 0o755)
	}
	if err == nil {
		err = os.Rename(mine, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startUser starts a process of nobody. Its first line must begin with want.
func (h *host) startUser(want string) *user {
	h.t.Helper()
	return startUserAs(h.t, nobody, want, envRole+"="+roleUser, "E2E_SOCKET="+h.sock)
}

// startUserAs starts this test binary as a process of a user. Its first line must begin with want.
func startUserAs(t *testing.T, uid uint32, want string, env ...string) *user {
	t.Helper()
	cmd := exec.Command(othersBinary(t))
	cmd.Dir = "/"
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	u := &user{process: run(t, cmd, &syscall.Credential{Uid: uid, Gid: uid}), in: in}
	t.Cleanup(u.Kill)
	u.line(want)
	return u
}

// line returns the next line, which must begin with want.
func (u *user) line(want string) string {
	u.t.Helper()
	var got string
	eventually(u.t, "an answer", func() error {
		lines := strings.SplitAfter(u.stdout(), "\n")
		if len(lines)-1 <= u.lines {
			return fmt.Errorf("missing, log: %s", u.log())
		}
		got = lines[u.lines]
		return nil
	})
	u.lines++
	if !strings.HasPrefix(got, want) {
		u.t.Errorf("answer %q, want %q", got, want)
	}
	return got
}

// do sends a command to the process and returns the answer, which must begin with want.
func (u *user) do(command, want string) string {
	u.t.Helper()
	if _, err := io.WriteString(u.in, command+"\n"); err != nil {
		u.t.Fatal(err)
	}
	return u.line(want)
}

// rdsctlAs runs rdsctl as nobody.
func (h *host) rdsctlAs(code int, args ...string) string {
	h.t.Helper()
	cmd := exec.Command(program("rdsctl"), append(args, "-socket", h.sock)...)
	cmd.Dir = "/"
	p := run(h.t, cmd, &syscall.Credential{Uid: nobody, Gid: nobody})
	h.t.Cleanup(p.Kill)
	if got := p.wait(); got != code {
		h.t.Errorf("rdsctl %v as another user: status %d, want %d; %s", args, got, code, p.log())
	}
	return p.stdout() + p.log()
}

// isolatedAsRoot is isolated for tests that run processes of another user.
func isolatedAsRoot(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("runs processes of another user: needs root")
	}
	isolated(t, run)
}

// openToAll starts a host that other users may use.
func openToAll(t *testing.T, options ...option) *host {
	t.Helper()
	h := newHost(t, append(options, withArgs("-socket-mode", "0666"))...)
	if err := os.Chmod(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestQuotasOfUser checks the quotas of another user. What all its processes have is counted
// together, bounded and shown. When one of them is killed, the user may have its part again.
// Root has no bounds.
func TestQuotasOfUser(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		h := openToAll(t, withArgs("-quota-sockets", "3", "-quota-clients", "2",
			"-quota-overrides", fmt.Sprintf("gid=%d registered_bytes=1MiB", nobody), "-quota-overrides", "uid=1 sockets=0"))
		at := func(port uint16) string { return "bind " + h.at(port).String() }
		a, b := h.startUser("attached"), h.startUser("attached")
		contains(t, "a third process", h.startUser("").stdout(), "quota.clients")
		a.do(at(4000), "bound")
		a.do(at(4001), "bound")
		b.do(at(4002), "bound")
		contains(t, "a fourth socket", b.do(at(4003), "ENOBUFS"), fmt.Sprintf("uid %d has 3", nobody), "quota.sockets")
		a.do(at(0), "ENOBUFS")
		a.do("alloc 1000000", "done")
		contains(t, "more memory", b.do("alloc 100000", "ENOBUFS"), "quota.registered_bytes")
		b.do("alloc 4096", "done")

		c := h.open()
		for range 10 {
			h.bind(c, 0)
		}
		if _, err := c.Alloc(8 << 20); err != nil {
			t.Error(err)
		}

		us := func() (u ctl.User) {
			for _, x := range h.rdsctlJSON("status").Status.Users {
				if x.UID != nil && *x.UID == nobody {
					u = x
				}
			}
			return u
		}
		if u := us(); u.Clients.Used != 2 || u.Sockets.Used != 3 || u.Sockets.Quota == nil || *u.Sockets.Quota != 3 || *u.RegisteredBytes.Quota != 1<<20 ||
			u.RegisteredBytes.Used != 1003520+4096 { // in whole pages
			t.Errorf("usage %+v", u)
		}
		a.Kill()
		eventually(t, "what a killed process had", func() error {
			if u := us(); u.Clients.Used != 1 || u.Sockets.Used != 1 || u.RegisteredBytes.Used != 4096 {
				return fmt.Errorf("is counted: %+v", u)
			}
			return nil
		})
		b.do(at(4000), "bound")
		b.do(at(4001), "bound")
		b.do(at(4003), "ENOBUFS")
		b.do("alloc 1000000", "done")
		d := h.startUser("attached")
		d.do(at(4003), "ENOBUFS")
	})
}

// TestBindPolicyForUser checks that a rule refuses a bind of another user with EACCES and does
// not concern root.
func TestBindPolicyForUser(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		h := openToAll(t, withArgs("-bind-rules", fmt.Sprintf("allow uid=%d port=80", nobody), "-bind-rules", "deny port=2-1023",
			"-bind-rules", "deny address=127.0.0.0/8 port=5000-65535"))
		at := func(port uint16) string { return "bind " + h.at(port).String() }
		u := h.startUser("attached")
		u.do(at(80), "bound")
		contains(t, "port 81", u.do(at(81), "EACCES"), "rule 2 of bind.rules (deny port=2-1023)", fmt.Sprint("uid ", nobody))
		contains(t, "port 5000", u.do(at(5000), "EACCES"), "rule 3")
		u.do(at(4999), "bound")
		for range 20 {
			var port int
			line := u.do(at(0), "bound")
			if _, err := fmt.Sscanf(line[strings.LastIndex(line, ":"):], ":%d", &port); err != nil || port < 1024 || port >= 5000 {
				t.Errorf("a port the policy denies: %s", line)
			}
		}
		h.bind(h.open(), 81)
	})
}

// TestWhatUsersSee checks that another user sees its own sockets and usage, and only sums of the
// rest. It cannot change anything.
func TestWhatUsersSee(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		h := openToAll(t)
		u := h.startUser("attached")
		u.do("bind "+h.at(4000).String(), "bound")
		h.bind(h.open(), 4001)
		h.bind(h.open(), 4002)

		socks := h.rdsctlAs(0, "sockets")
		contains(t, "its sockets", socks, "4000", "2 sockets of other users are not shown")
		if strings.Contains(socks, "4001") || strings.Contains(socks, "4002") {
			t.Errorf("sees sockets of root:\n%s", socks)
		}
		eventually(t, "the sums", func() error { // sums are published at intervals
			if status := h.rdsctlAs(0, "status"); !strings.Contains(status, "3 clients, 3 sockets") {
				return fmt.Errorf("are\n%s", status)
			}
			return nil
		})
		status := h.rdsctlAs(0, "status")
		contains(t, "its usage", status, fmt.Sprintf("\n%d    1/512", nobody))
		if strings.Contains(status, "\n0  ") {
			t.Errorf("sees usage of root:\n%s", status)
		}
		contains(t, "a reset", h.rdsctlAs(5, "peer", "reset", "127.0.0.1"), "only root and the daemon's own user")

		contains(t, "the lists of all", h.rdsctlAs(5, "sockets", "-offline"), "only root and the daemon's own user")

		socks = h.rdsctl("sockets")
		contains(t, "root's view", socks, "4000", "4001", "4002")
		contains(t, "root's view", h.rdsctl("status"), fmt.Sprintf("\n%d ", nobody), "\n0 ")
	})
}
