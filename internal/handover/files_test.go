package handover

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestFiles: a descriptor that came with a state is taken once, and those that nobody took are closed.
func TestFiles(t *testing.T) {
	var out Files
	for i := range 3 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		if at := out.Add(fd); at != uint32(i) {
			t.Errorf("descriptor %d is at place %d", i, at)
		}
	}
	reader := func() *State {
		r, err := Read(Write(Newest).Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	in := Files{All: append([]int(nil), out.All...)}
	r := reader()
	if fd := in.Take(r, 1); fd != out.All[1] || r.Err() != nil {
		t.Errorf("took %d, want %d (%v)", fd, out.All[1], r.Err())
	}
	for what, at := range map[string]uint32{"twice": 1, "behind the last": 3, "none": NoFile} {
		r := reader()
		if fd := in.Take(r, at); fd != -1 || r.Err() == nil {
			t.Errorf("%s: took %d, %v", what, fd, r.Err())
		}
		if fd := in.Take(r, 0); fd != -1 {
			t.Errorf("%s: took %d after an error", what, fd)
		}
	}
	in.Close()
	for i, fd := range out.All {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if open := err == nil; open != (i == 1) {
			t.Errorf("descriptor %d is open: %v", i, open)
		}
	}
	unix.Close(out.All[1])
}
