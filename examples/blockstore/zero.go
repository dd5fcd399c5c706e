package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// zeros is what is written where the file system cannot do it.
var zeros [1 << 20]byte

// zero makes the bytes of m zeros: by fallocate, else by writing. For FlagTrim
// it gives the storage back if that is possible, and else does nothing.
func (e *export) zero(m *store.Message) *store.Failure {
	size, f := e.size()
	switch {
	case f != nil:
		return f
	case m.Offset()+int64(m.Length) > size:
		return store.Failf(store.StatusRange, "%d bytes at offset %d: the export has %d", m.Length, m.Offset(), size)
	case m.Length > store.MaxZero:
		return store.Failf(store.StatusBad, "ZERO of %d bytes, at most %d", m.Length, store.MaxZero)
	}
	done, f := e.allocate(m)
	switch {
	case done || f != nil || m.Flags&store.FlagTrim != 0:
		return f
	case m.Flags&store.FlagFast != 0:
		return store.Failf(store.StatusSlow, "zeros have to be written here")
	}
	for at, left := m.Offset(), int(m.Length); left > 0; {
		n := min(left, len(zeros))
		if f := e.writeZeros(m, at, n); f != nil {
			return f
		}
		at, left = at+int64(n), left-n
	}
	return nil
}

// allocate tries the ways of fallocate that m allows.
func (e *export) allocate(m *store.Message) (done bool, f *store.Failure) {
	var modes []uint32
	if m.Flags&(store.FlagHole|store.FlagTrim) != 0 {
		modes = append(modes, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE)
	}
	if m.Flags&store.FlagTrim == 0 {
		modes = append(modes, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE)
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if f := e.checkLocked(m.Session); f != nil {
		return false, f
	}
	for _, mode := range modes {
		err := e.fallocate(mode, m.Offset(), int64(m.Length))
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM):
			// Not here, or not for these bytes.
		default:
			return false, writeFailure(fmt.Sprintf("zeros at offset %d", m.Offset()), err)
		}
	}
	return false, nil
}

// fallocate is the system call; signals are tried through.
func (e *export) fallocate(mode uint32, off, n int64) error {
	for {
		err := unix.Fallocate(int(e.file.Fd()), mode, off, n)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writeZeros writes one slice; a session that ends is let through between two.
func (e *export) writeZeros(m *store.Message, at int64, n int) *store.Failure {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if f := e.checkLocked(m.Session); f != nil {
		return f
	}
	_, err := e.file.WriteAt(zeros[:n], at)
	return writeFailure(fmt.Sprintf("zeros at offset %d", at), err)
}
