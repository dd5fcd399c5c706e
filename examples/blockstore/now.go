package main

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// readNow reads p at off if that needs no wait for storage. It returns false if it has to
// wait, and after an error.
func (e *export) readNow(p []byte, off int64) bool {
	if e.inMemory {
		n, err := e.file.ReadAt(p, off)
		return n == len(p) && err == nil
	}
	n, err := unix.Preadv2(e.fd, [][]byte{p}, off, unix.RWF_NOWAIT)
	return n == len(p) && err == nil
}

// writeNow does what write does if that needs no wait, neither for storage nor for the end
// of another session. Otherwise it returns false, and a part of p may have been written. File
// systems that take no writes with RWF_NOWAIT, as ext4 through the page cache, leave all
// writes to the workers: a plain write may wait for the journal, and would hold up everybody.
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

// checkNow does what check does, and returns false if check had to wait.
func (e *export) checkNow(session uint64) (done bool, f *store.Failure) {
	if !e.mu.TryRLock() {
		return false, nil
	}
	defer e.mu.RUnlock()
	return true, e.checkLocked(session)
}
