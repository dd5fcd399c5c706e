package preload

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/test/cbuild"
	"github.com/rdsd/rdsd/rdstest"
)

// sanitizers are the builds in which the programs run.
func sanitizers() []string {
	if testing.Short() {
		return []string{""}
	}
	return []string{"", "address,undefined", "thread"}
}

// TestPrograms: every call, readiness, processes and threads, memory, wrong addresses, Oracle's
// extensions, a sandbox that denies AF_RDS, ports that are bound anew.
func TestPrograms(t *testing.T) {
	for _, s := range sanitizers() {
		for _, name := range []string{"calls", "ready", "process", "memory", "fault", "handler", "oracle", "denied", "anew"} {
			if name == "handler" && s == "thread" {
				continue // the sanitizer's runtime runs handlers with flags of its own
			}
			t.Run(name+",sanitize="+s, func(t *testing.T) {
				d := rdstest.StartDaemons(t, 1)[0]
				finish(t, preloaded(t, d, s, filepath.Join(built(t, s), "pre-"+name), d.Addr().String()))
				if name == "memory" { // once more, with keys for those alone who were granted them
					cmd := preloaded(t, d, s, filepath.Join(built(t, s), "pre-"+name), d.Addr().String())
					cmd.Env = append(cmd.Env, "RDSD_PRELOAD_STRICT=1")
					finish(t, cmd)
				}
			})
		}
	}
}

// TestLost: a program that asks for it gets an error for a message that was lost.
func TestLost(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			cmd := preloaded(t, d, s, filepath.Join(built(t, s), "pre-lost"), d.Addr().String())
			cmd.Env = append(cmd.Env, "RDSD_PRELOAD_ERRORS=1")
			finish(t, cmd)
		})
	}
}

// TestNamespaces: with %n in RDSD_SOCKET a socket is the daemon's of the network namespace in which
// it was made.
func TestNamespaces(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			ds, dir := rdstest.StartDaemons(t, 2), t.TempDir()
			cmd := preloadedAt(t, dir+"/%n", s, filepath.Join(built(t, s), "pre-netns"),
				ds[0].Addr().String(), ds[0].Socket(), ds[1].Addr().String(), ds[1].Socket(), dir)
			cmd.Env = append(cmd.Env, "RDSD_PRELOAD_QUIET=1")
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() == 4 {
				t.Skip("network namespaces cannot be made here")
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestDaemonEnds: sockets end with the daemon, what they had received can still be taken, and
// new sockets are those of the next daemon.
func TestDaemonEnds(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			k := startTalk(t, preloaded(t, d, s, filepath.Join(built(t, s), "pre-gone"), d.Addr().String()))
			k.ready()
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			k.next()
			k.ready()
			d.Start(t)
			k.next()
			k.finish()
		})
	}
}

// TestNoDaemon: socket(AF_RDS) fails with EAFNOSUPPORT, and the reason is said once.
func TestNoDaemon(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	cmd := preloaded(t, d, "", filepath.Join(built(t, ""), "pre-gone"), d.Addr().String(), "none")
	cmd.Env = append(cmd.Env, "RDSD_SOCKET=/nonexistent/rdsd.sock")
	if out := finish(t, cmd); strings.Count(out, "\n") != 1 || !strings.Contains(out, "/nonexistent/rdsd.sock: no daemon answers") {
		t.Errorf("output %q", out)
	}
	cmd = preloaded(t, d, "", filepath.Join(built(t, ""), "pre-gone"), d.Addr().String(), "none")
	cmd.Env = append(cmd.Env, "RDSD_SOCKET=/nonexistent/rdsd.sock", "RDSD_PRELOAD_QUIET=1")
	if out := finish(t, cmd); out != "" {
		t.Errorf("output %q although rdsctl run has said it", out)
	}
}

// TestPython runs CPython's own tests of AF_RDS sockets. Without the library they are skipped.
func TestPython(t *testing.T) {
	built(t, "") // or skipped
	if err := exec.Command("python3", "-c", "import test.test_socket").Run(); err != nil {
		t.Skip("no python3 with its test package: Debian's package is libpython3.x-testsuite")
	}
	version(t, finish(t, exec.Command("python3", "--version")))
	d := rdstest.StartDaemons(t, 1)[0]
	run := fmt.Sprintf("import unittest, test.test_socket as s; from test.support import socket_helper as h; s.HOST = '%[1]v'; h.bind_port.__defaults__ = ('%[1]v',); unittest.main(s, argv=['x', '-v', 'BasicRDSTest', 'RDSTest'])", d.Addr())
	out := finish(t, preloaded(t, d, "", "python3", "-c", run))
	if !strings.Contains(out, "Ran 8 tests") || strings.Contains(out, "skipped") {
		t.Errorf("not all of them ran:\n%s", out)
	}
}

// TestSystemCalls: on a busy socket the library adds no system call to a message. The program
// makes 20,000 round trips, half of them with one message at a time. What waits for the daemon
// and wakes it does not count: how often that is needed depends on what else the machine does.
func TestSystemCalls(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("no strace")
	}
	d := rdstest.StartDaemons(t, 1)[0]
	counts := filepath.Join(t.TempDir(), "counts")
	cmd := preloaded(t, d, "", "strace", "-f", "-c", "-o", counts, filepath.Join(built(t, ""), "pre-busy"), d.Addr().String())
	for i, e := range cmd.Env { // strace itself makes no RDS calls
		if lib, ok := strings.CutPrefix(e, "LD_PRELOAD="); ok {
			cmd.Env[i] = "LD_PRELOAD_FOR=" + lib
			cmd.Args = append(cmd.Args[:1], append([]string{"-E", e}, cmd.Args[1:]...)...)
		}
	}
	out := finish(t, cmd)
	sent, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("output %q", out)
	}
	table, err := os.ReadFile(counts)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, m := range regexp.MustCompile(`(?m)^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(sendmsg|recvmsg|sendto|recvfrom|write|writev|poll|ioctl|fcntl|epoll_wait|getsockopt|openat)$`).FindAllStringSubmatch(string(table), -1) {
		n, _ := strconv.Atoi(m[1])
		calls += n
	}
	t.Logf("%d messages, %d system calls other than those that wait and wake", sent, calls)
	if calls > sent/10 {
		t.Errorf("%d system calls for %d messages:\n%s", calls, sent, table)
	}
}

// TestBuffers: a new socket has the host's default buffers, as the kernel's has. A library behind the preload library plays a host
// whose administrator has raised net.core.wmem_default and rmem_default.
func TestBuffers(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	d, dir := rdstest.StartDaemons(t, 1)[0], t.TempDir()
	host := filepath.Join(dir, "host.so")
	if err := os.WriteFile(host+".c", []byte(`#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int getsockopt(int fd, int level, int option, void *v, socklen_t *n)
{
	if (syscall(SYS_getsockopt, fd, level, option, v, n))
		return -1;
	if (level == SOL_SOCKET && (option == SO_SNDBUF || option == SO_RCVBUF))
		*(int *)v = option == SO_SNDBUF ? 1 << 20 : 1 << 21;
	return 0;
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	finish(t, exec.Command(cbuild.Compiler(), "-shared", "-fPIC", "-o", host, host+".c"))
	cmd := preloaded(t, d, "", "python3", "-c", fmt.Sprintf(`import socket as s
k = s.socket(21, s.SOCK_SEQPACKET)
print([k.getsockopt(s.SOL_SOCKET, o) for o in (s.SO_SNDBUF, s.SO_RCVBUF)])
k.bind(('%[1]v', 0))
for n in (524288, 524289):
	try: print(k.sendto(bytes(n), k.getsockname()))
	except OSError as e: print(e.errno)`, d.Addr()))
	for i, e := range cmd.Env {
		if strings.HasPrefix(e, "LD_PRELOAD=") {
			cmd.Env[i] = e + ":" + host
		}
	}
	if out := finish(t, cmd); out != "[1048576, 2097152]\n524288\n90\n" { // the limit is half of it; EMSGSIZE
		t.Errorf("output %q", out)
	}
}
