package succession

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDescriptorLimit: a successor that may not have as many descriptors as there are gives
// up, and says what to raise.
func TestDescriptorLimit(t *testing.T) {
	old, next := pair(t)
	d := &daemons{state: Parcel{Files: numbered(t, 2*batch)}}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	low := was
	low.Cur = uint64(before) + batch + batch/2 // room for one packet and a half
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }()
	handed, taken := d.run(old, next, lives)
	if !errors.Is(handed, ErrRefused) || !errors.Is(taken, unix.EMFILE) {
		t.Errorf("%v, %v", handed, taken)
	}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	if n := openFiles(t); n > before {
		t.Errorf("%d descriptors are open, before it were %d", n, before)
	}
	if len(d.did) != 2 || d.did[1] != "resume" {
		t.Errorf("the predecessor did %v", d.did)
	}
}
