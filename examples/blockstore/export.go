package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// export is the file, or block device, that is served. Safe for concurrent use.
type export struct {
	file     *os.File
	readOnly bool
	regular  bool

	// mu guards the fields below and is held for reading during a pwrite, so
	// that a session that ends has no write left in it.
	mu        sync.RWMutex
	session   uint64 // the writer's, 0 = none
	committed uint64 // the last one committed
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
		_, err = f.Seek(0, io.SeekEnd) // a pipe or terminal has no blocks
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &export{file: f, readOnly: readOnly, regular: info.Mode().IsRegular()}, nil
}

func (e *export) close() error { return e.file.Close() }

// size of the export in bytes, now.
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

// begin makes session the writer; the session before it, if any, is over and
// has no write left in progress.
func (e *export) begin(session uint64) *store.Failure {
	if e.readOnly {
		return store.Failf(store.StatusReadOnly, "the export is served read-only")
	}
	if session == 0 {
		return store.Failf(store.StatusBad, "session 0 cannot write")
	}
	e.mu.Lock()
	e.session = session
	e.mu.Unlock()
	return nil
}

// check says whether session may write.
func (e *export) check(session uint64) *store.Failure {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.checkLocked(session)
}

func (e *export) checkLocked(session uint64) *store.Failure {
	switch {
	case e.readOnly:
		return store.Failf(store.StatusReadOnly, "the export is served read-only")
	case session == 0 || session != e.session:
		return store.Failf(store.StatusStale, "another client has taken over writing, or this copy is already complete")
	}
	return nil
}

// write puts p at the block of m.
func (e *export) write(p []byte, m *store.Message) *store.Failure {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if f := e.checkLocked(m.Session); f != nil {
		return f
	}
	_, err := e.file.WriteAt(p, m.Offset())
	return writeFailure(fmt.Sprintf("block %d", m.Block), err)
}

// commit ends session: size set, all on stable storage. Committing the last
// session once more is no error: its answer may have been lost.
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
		return writeFailure("fsync", err)
	}
	e.session, e.committed = 0, session
	return nil
}

// writeFailure is what went wrong when writing, nil if nothing did.
func writeFailure(what string, err error) *store.Failure {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return store.Failf(store.StatusNoSpace, "%s: %v", what, err)
	}
	return store.Failf(store.StatusIO, "%s: %v", what, err)
}
