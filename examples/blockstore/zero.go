package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// zeros is written where the file system cannot make zeros itself.
var zeros [1 << 20]byte

// zero makes the bytes of m zeros, by fallocate if that works and else by writing. With
// FlagFast it fails instead of writing. With FlagTrim it only gives the storage back, and
// does nothing if that is not possible.
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

// allocate tries the modes of fallocate that m allows. done says that one has worked.
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
			// The file system cannot do that, or not for these bytes: try the next mode.
		default:
			return false, writeFailure(fmt.Sprintf("zeros at offset %d", m.Offset()), err)
		}
	}
	return false, nil
}

// fallocate is the system call. It is repeated if a signal interrupts it.
func (e *export) fallocate(mode uint32, off, n int64) error {
	for {
		err := unix.Fallocate(e.fd, mode, off, n)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writeZeros writes n zeros at the offset at. It takes the lock for each slice, so that
// another session can begin between two slices.
func (e *export) writeZeros(m *store.Message, at int64, n int) *store.Failure {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if f := e.checkLocked(m.Session); f != nil {
		return f
	}
	_, err := e.file.WriteAt(zeros[:n], at)
	return writeFailure(fmt.Sprintf("zeros at offset %d", at), err)
}
