package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// export is the file, or block device, that is served. It is safe for concurrent use.
type export struct {
	file     *os.File
	fd       int // file's
	readOnly bool
	regular  bool
	inMemory bool        // the file system is: nothing waits for storage
	noWait   atomic.Bool // writes can be told not to wait

	// mu guards the fields below. A pwrite holds it for reading, so that no write of a
	// session is in progress when the session has ended.
	mu        sync.RWMutex
	session   atomic.Uint64 // the session that may write; 0 if there is none. READs look at it without mu
	committed uint64        // the session that committed last
}

// openExport opens the file to serve.
func openExport(path string, readOnly, create bool) (*export, error) {
	mode := os.O_RDWR
	if readOnly {
		mode = os.O_RDONLY
	}
	if create {
		mode |= os.O_CREATE
	}
	f, err := os.OpenFile(path, mode, 0o644)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("export %s: is a directory", path)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekEnd) // fails for a pipe or terminal, which has no blocks
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return exportOf(f, readOnly, info.Mode().IsRegular()), nil
}

func exportOf(f *os.File, readOnly, regular bool) *export {
	e := &export{file: f, fd: int(f.Fd()), readOnly: readOnly, regular: regular}
	var fs unix.Statfs_t
	if regular && unix.Fstatfs(e.fd, &fs) == nil {
		e.inMemory = fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
	}
	e.noWait.Store(true)
	return e
}

func (e *export) close() error { return e.file.Close() }

// size returns the current size of the export in bytes.
func (e *export) size() (int64, *store.Failure) {
	if !e.regular {
		n, err := e.file.Seek(0, io.SeekEnd)
		if err != nil {
			return 0, store.Failf(store.StatusIO, "size of the export: %v", err)
		}
		return n, nil
	}
	info, err := e.file.Stat()
	if err != nil {
		return 0, store.Failf(store.StatusIO, "size of the export: %v", err)
	}
	return info.Size(), nil
}

// read fills p with the block of m.
func (e *export) read(p []byte, m *store.Message) *store.Failure {
	n, err := e.file.ReadAt(p, m.Offset())
	switch {
	case n == len(p):
		return nil
	case errors.Is(err, io.EOF):
		return store.Failf(store.StatusShort, "block %d: the export ends %d bytes into it, %d expected: truncated while served",
			m.Block, n, len(p))
	}
	return store.Failf(store.StatusIO, "block %d: %v", m.Block, err)
}

// begin makes session the writer. It ends the session before, if there is one. No write of
// that session is in progress when begin returns.
func (e *export) begin(session uint64) *store.Failure {
	if e.readOnly {
		return store.Failf(store.StatusReadOnly, "the export is served read-only")
	}
	if session == 0 {
		return store.Failf(store.StatusBad, "session 0 cannot write")
	}
	e.mu.Lock()
	e.session.Store(session)
	e.mu.Unlock()
	return nil
}

// check returns why session may not write, or nil if it may.
func (e *export) check(session uint64) *store.Failure {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.checkLocked(session)
}

func (e *export) checkLocked(session uint64) *store.Failure {
	switch {
	case e.readOnly:
		return store.Failf(store.StatusReadOnly, "the export is served read-only")
	case session == 0 || session != e.session.Load():
		return store.Failf(store.StatusStale, "another client has taken over writing, this copy is already complete, or an fsync has failed")
	}
	return nil
}

// write writes p to the block of m.
func (e *export) write(p []byte, m *store.Message) *store.Failure {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if f := e.checkLocked(m.Session); f != nil {
		return f
	}
	_, err := e.file.WriteAt(p, m.Offset())
	return writeFailure(fmt.Sprintf("block %d", m.Block), err)
}

// commit sets the size, puts everything on stable storage and ends session. To commit the
// last session once more is no error, because the first answer may have been lost.
func (e *export) commit(session uint64, size int64) *store.Failure {
	e.mu.Lock()
	defer e.mu.Unlock()
	if session != 0 && session == e.committed {
		return nil
	}
	if f := e.checkLocked(session); f != nil {
		return f
	}
	if e.regular {
		if err := e.file.Truncate(size); err != nil {
			return writeFailure("size", err)
		}
	}
	if err := e.file.Sync(); err != nil {
		e.session.Store(0) // as lost does
		return writeFailure("fsync", err)
	}
	e.session.Store(0)
	e.committed = session
	return nil
}

// lost ends the session, because an fsync has failed. Linux reports such an error once: the
// next fsync would succeed, although writes were lost that the session was told are written.
func (e *export) lost() {
	e.mu.Lock()
	e.session.Store(0)
	e.mu.Unlock()
}

// writeFailure turns the error of a write into a failure; nil stays nil.
func writeFailure(what string, err error) *store.Failure {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return store.Failf(store.StatusNoSpace, "%s: %v", what, err)
	}
	return store.Failf(store.StatusIO, "%s: %v", what, err)
}
