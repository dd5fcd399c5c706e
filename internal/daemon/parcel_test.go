package daemon

import (
	"testing"

	"github.com/rdsd/rdsd/internal/handover"
	"golang.org/x/sys/unix"
)

// A descriptor that came with a state is taken once, and those that nobody took are closed.
func TestParcelFiles(t *testing.T) {
	var out outFiles
	for i := range 3 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		if at := out.add(fd); at != uint32(i) {
			t.Errorf("descriptor %d is at place %d", i, at)
		}
	}
	reader := func() *handover.Reader {
		r, err := handover.NewReader(handover.NewWriter(handover.Newest).Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	in := inFiles{all: append([]int(nil), out.all...)}
	r := reader()
	if fd := in.take(r, 1); fd != out.all[1] || r.Err() != nil {
		t.Errorf("took %d, want %d (%v)", fd, out.all[1], r.Err())
	}
	for what, at := range map[string]uint32{"twice": 1, "behind the last": 3, "none": handover.NoFile} {
		r := reader()
		if fd := in.take(r, at); fd != -1 || r.Err() == nil {
			t.Errorf("%s: took %d, %v", what, fd, r.Err())
		}
		if fd := in.take(r, 0); fd != -1 {
			t.Errorf("%s: took %d after an error", what, fd)
		}
	}
	in.close()
	for i, fd := range out.all {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if open := err == nil; open != (i == 1) {
			t.Errorf("descriptor %d is open: %v", i, open)
		}
	}
	unix.Close(out.all[1])
}
