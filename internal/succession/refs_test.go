package succession

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// refsUser is an ordinary user of whom nothing else has descriptors on their way.
const refsUser = 61312

// TestTooManyRefs: a parcel of any size goes over while descriptors on their way leave room for one
// more below the kernel's limit. Beyond the limit the hand-over fails while the predecessor serves.
func TestTooManyRefs(t *testing.T) {
	const env = "RDSD_TEST_ORDINARY_USER"
	if os.Getenv(env) == "" { // the kernel has a limit for processes without capabilities alone
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), env+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if os.Getuid() == 0 {
		if err := syscall.Setresuid(refsUser, refsUser, refsUser); err != nil {
			t.Fatal(err)
		}
	}
	files := numbered(t, 3*batch)
	socks, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	hand := func() (*daemons, error) {
		t.Helper()
		old, next := pair(t)
		d := &daemons{state: Parcel{Files: files}}
		handed, taken := d.run(old, next, lives)
		closeAll(d.gotState.Files)
		if (handed == nil) != (taken == nil) {
			t.Errorf("%v, %v", handed, taken)
		}
		return d, handed
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	low := was
	low.Cur = 10 * batch
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
	onTheirWay := func(n int) {
		t.Helper()
		for ; n > 0; n -= batch {
			if err := unix.Sendmsg(socks[0], []byte{0}, unix.UnixRights(files[:min(n, batch)]...), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	onTheirWay(10*batch - 1)
	if _, err := hand(); err != nil {
		t.Errorf("below the limit: %v", err)
	}
	onTheirWay(2)
	d, err := hand()
	if !errors.Is(err, unix.ETOOMANYREFS) || len(d.did) != 0 {
		t.Errorf("beyond the limit: %v, and the predecessor did %v", err, d.did)
	}
}
