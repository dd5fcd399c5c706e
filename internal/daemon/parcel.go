package daemon

import (
	"github.com/rdsd/rdsd/internal/handover"
	"golang.org/x/sys/unix"
)

// outFiles are the descriptors that go with a state. They stay their owners'.
type outFiles struct{ all []int }

// add adds a descriptor and returns its place, by which the state names it.
func (f *outFiles) add(fd int) uint32 {
	f.all = append(f.all, fd)
	return uint32(len(f.all) - 1)
}

// inFiles are the descriptors that came with a state. Each is taken once.
type inFiles struct{ all []int } // -1: taken

// take returns the descriptor at a place. It is the caller's from then on. If there is none,
// or it was taken before, r fails and take returns -1.
func (f *inFiles) take(r *handover.Reader, at uint32) int {
	switch {
	case r.Err() != nil:
		return -1
	case uint64(at) >= uint64(len(f.all)): // too few have come
		r.Shared()
		r.Fail("descriptor %d of %d", at, len(f.all))
		return -1
	case f.all[at] < 0:
		r.Fail("descriptor %d is named twice", at)
		return -1
	}
	fd := f.all[at]
	f.all[at] = -1
	return fd
}

// close closes the descriptors that nobody took.
func (f *inFiles) close() {
	for _, fd := range f.all {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	f.all = nil
}
