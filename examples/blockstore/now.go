package main

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// readNow fills p from off if that needs no wait for storage; else, or if anything
// is wrong, it returns false.
func (e *export) readNow(p []byte, off int64) bool {
	if e.inMemory {
		n, err := e.file.ReadAt(p, off)
		return n == len(p) && err == nil
	}
	n, err := unix.Preadv2(e.fd, [][]byte{p}, off, unix.RWF_NOWAIT)
	return n == len(p) && err == nil
}

// writeNow is write if that needs no wait, neither for storage nor for another
// session to end; else it returns false, and part of p may be written.
func (e *export) writeNow(p []byte, m *store.Message) (done bool, f *store.Failure) {
	if !e.inMemory && !e.noWait.Load() || !e.mu.TryRLock() {
		return false, nil
	}
	defer e.mu.RUnlock()
	if f := e.checkLocked(m.Session); f != nil {
		return true, f
	}
	if e.inMemory {
		n, err := e.file.WriteAt(p, m.Offset())
		return n == len(p) && err == nil, nil
	}
	n, err := unix.Pwritev2(e.fd, [][]byte{p}, m.Offset(), unix.RWF_NOWAIT)
	if errors.Is(err, unix.EOPNOTSUPP) {
		e.noWait.Store(false)
	}
	return n == len(p) && err == nil, nil
}

// checkNow is check if that needs no wait.
func (e *export) checkNow(session uint64) (done bool, f *store.Failure) {
	if !e.mu.TryRLock() {
		return false, nil
	}
	defer e.mu.RUnlock()
	return true, e.checkLocked(session)
}
