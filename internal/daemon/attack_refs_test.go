package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// refsUser is an ordinary user of whom nothing else has descriptors on their way.
const refsUser = 61311

// asOrdinaryUser runs the test in a process without capabilities, because the kernel bounds the
// descriptors on their way for such processes alone.
func asOrdinaryUser(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	const env = "RDSD_TEST_ORDINARY_USER"
	if os.Getenv(env) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), env+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		} else if strings.Contains(string(out), "--- SKIP") {
			t.Skip(string(out))
		}
		return
	}
	if os.Getuid() == 0 {
		if err := syscall.Setresuid(refsUser, refsUser, refsUser); err != nil {
			t.Fatal(err)
		}
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil { // /proc/self stays the process's
			t.Fatal(err)
		}
	}
	run(t)
}

// onTheirWay has n descriptors on their way until drop is called.
func onTheirWay(t *testing.T, n int) (drop func()) {
	t.Helper()
	var socks []int
	drop = func() {
		for _, fd := range socks {
			unix.Close(fd)
		}
		socks = nil
	}
	t.Cleanup(drop)
	for sent := 0; sent < n; sent += ipc.MaxFDs {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		socks = append(socks, pair[0], pair[1])
		fds := make([]int, min(ipc.MaxFDs, n-sent))
		if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fds...), nil, 0); err != nil { // of standard input
			t.Fatal(err)
		}
	}
	return drop
}

// TestTooManyRefs: the kernel refuses to send descriptors (ETOOMANYREFS), because other programs of
// the daemon's user have as many on their way. That is ENOBUFS of the requests whose answers have
// some. Sessions go on, and what was refused leaves nothing. Later the same requests are granted.
func TestTooManyRefs(t *testing.T) {
	asOrdinaryUser(t, func(t *testing.T) {
		d := startDaemon(t, nil)
		p, q := attached(t, d), attached(t, d)
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		before := d.engine.Memory().Sum()
		low := unix.Rlimit{Cur: 500, Max: limit.Max} // descriptors that are open stay so
		drop := onTheirWay(t, int(low.Cur)+1)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) })
		for range 2 {
			if err := hello(dial(t, d), ipc.RoleClient); err == nil || !strings.Contains(err.Error(), "no buffer space") {
				t.Errorf("Hello: %v", err)
			}
			for _, r := range []ipc.Request{&ipc.Alloc{Size: 4096}, &ipc.GrowSend{}} {
				if e, ok := p.call(r).Body.(*ipc.Err); !ok || e.Errno != uint32(unix.ENOBUFS) {
					t.Errorf("%T: %+v", r, e)
				}
			}
		}
		for _, x := range []*proc{p, q} {
			if b := x.call(&ipc.Addrs{}).Body; b.Type() != ipc.TypeAddrsOK {
				t.Errorf("a request whose answer has no descriptor: %+v", b)
			}
			if err := x.ping(); err != nil {
				t.Error(err)
			}
		}
		if err := hello(dial(t, d), ipc.RoleCtl); err != nil {
			t.Errorf("rdsctl: %v", err)
		}
		if n := len(d.unreceived.listed()); n != 0 {
			t.Errorf("%d connections have descriptors that were not sent", n)
		}
		drop()
		later := dial(t, d)
		if err := hello(later, ipc.RoleClient); err != nil {
			t.Errorf("Hello afterwards: %v", err)
		}
		later.Close()
		for _, r := range []ipc.Request{&ipc.GrowSend{}, &ipc.Alloc{Size: 4096}} {
			m := p.call(r)
			if len(m.FDs) != 1 {
				t.Errorf("%T afterwards: %+v", r, m.Body)
			}
			m.CloseFDs()
		}
		before.Maps, before.Shared, before.Registered = before.Maps+2, before.Shared+4<<20, before.Registered+4096
		eventually(t, "only what was granted is left", func() error {
			if now := d.engine.Memory().Sum(); now != before {
				return fmt.Errorf("%+v, want %+v", now, before)
			}
			return nil
		})
	})
}
