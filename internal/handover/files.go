package handover

import "golang.org/x/sys/unix"

// Files are the descriptors that go with a state, which names each by its place. Those of a state that
// is written stay their owners'. Of a state that is read each is taken once.
type Files struct{ All []int } // -1: taken

// FD has a descriptor go over. One that is read is the caller's from then on, or -1 after an error.
func (f *Files) FD(s *State, fd *int) {
	var at uint32
	if !s.reads {
		at = f.Add(*fd)
	}
	if s.U32(&at); s.reads {
		*fd = f.Take(s, at)
	}
}

// Add adds a descriptor and returns its place.
func (f *Files) Add(fd int) uint32 {
	f.All = append(f.All, fd)
	return uint32(len(f.All) - 1)
}

// Take returns the descriptor at a place. It is the caller's from then on. If there is none,
// or it was taken before, s fails and Take returns -1.
func (f *Files) Take(s *State, at uint32) int {
	switch {
	case s.err != nil:
		return -1
	case uint64(at) >= uint64(len(f.All)): // too few have come
		s.Shared()
		s.Fail("descriptor %d of %d", at, len(f.All))
		return -1
	case f.All[at] < 0:
		s.Fail("descriptor %d is named twice", at)
		return -1
	}
	fd := f.All[at]
	f.All[at] = -1
	return fd
}

// Close closes the descriptors that nobody took.
func (f *Files) Close() {
	for _, fd := range f.All {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	f.All = nil
}
