package stats

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another live daemon owns the file. Compare with errors.Is.
var ErrInUse = errors.New("in use by another daemon")

// File is the mapping on the writer's side. The file is preallocated, and locked while the
// process lives, so that a reader can tell a live writer from a dead one.
type File struct {
	f    *os.File
	mem  []byte
	path string // where readers look for it
	name string // where it is; "": another daemon's file is there
}

// Create makes the file at path, mode 0644, and replaces the file of a daemon that is gone.
// Readers of the old file keep the old file. Its error is ErrInUse or the file system's.
// Blocks are allocated here, so that ENOSPC cannot happen later.
func Create(path string) (*File, error) { return owned(CreateAside(path, 0)) }

// CreateLists is Create for the lists. Their mode is 0600, because they show what all users
// do.
func CreateLists(path string) (*File, error) { return owned(CreateListsAside(path, 0)) }

// CreateAside is Create without that readers find the file, until Own. The process pid may
// own the file at path.
func CreateAside(path string, pid int) (*File, error) { return createSized(path, pid, Size, 0o644) }

// CreateListsAside is CreateAside for the lists.
func CreateListsAside(path string, pid int) (*File, error) {
	return createSized(path, pid, ListSize, 0o600)
}

// owned is f, which Own was called for.
func owned(f *File, err error) (*File, error) {
	if err != nil {
		return nil, err
	}
	if err := f.Own(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Own has readers find f at its path, instead of the file that was there.
func (f *File) Own() error {
	if err := os.Rename(f.name, f.path); err != nil {
		return fmt.Errorf("statistics file: %w", err)
	}
	f.name = f.path
	return nil
}

// Path is where readers look for f.
func (f *File) Path() string { return f.path }

// Leave has Close not remove the file at the path, because another process owns that from
// now on.
func (f *File) Leave() { f.name = "" }

// RemoveDead removes the file at path if no process has it open for writing.
func RemoveDead(path string) {
	if _, live := owner(path); !live {
		os.Remove(path)
	}
}

func createSized(path string, instead, size int, mode os.FileMode) (*File, error) {
	if pid, live := owner(path); live && (pid != instead || pid == 0) {
		return nil, fmt.Errorf("statistics file %s: %w (pid %d)", path, ErrInUse, pid)
	}
	RemoveAside(path)
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	f, err := create(tmp, size, mode)
	if err != nil {
		return nil, fmt.Errorf("statistics file: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		os.Remove(tmp)
		f.Close()
		return nil, fmt.Errorf("statistics file %s: mmap: %w", path, err)
	}
	return &File{f: f, mem: mem, path: path, name: tmp}, nil
}

// RemoveAside removes files that CreateAside made for path, of processes that were killed
// before Own.
func RemoveAside(path string) {
	entries, _ := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		pid, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if _, err := strconv.ParseUint(pid, 10, 32); ok && err == nil {
			RemoveDead(path + "." + pid)
		}
	}
}

// create makes a file that is locked and has all its blocks.
func create(tmp string, size int, mode os.FileMode) (_ *os.File, err error) {
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
			f.Close()
		}
	}()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		return nil, &os.PathError{Op: "lock", Path: tmp, Err: err}
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != nil {
		return nil, &os.PathError{Op: "fallocate", Path: tmp, Err: err}
	}
	return f, nil
}

// Mem is the mapped memory for NewBlock, valid until Close.
func (f *File) Mem() []uint64 { return asWords(f.mem) }

// Close unmaps and removes the file, unless Leave was called. The Block and the Readers of Mem must not be used
// afterwards.
func (f *File) Close() error {
	var err error
	if f.name != "" {
		err = os.Remove(f.name)
	}
	return errors.Join(err, unix.Munmap(f.mem), f.f.Close())
}

// Mapping is the mapping on the side of a reader in another process.
type Mapping struct {
	*Reader
	mem  []byte
	path string
}

// Open maps the file at path read-only. Its error is ErrFormat, os.ErrNotExist or
// os.ErrPermission.
func Open(path string) (*Mapping, error) {
	mem, err := openMem(path, headerWords*8)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(asWords(mem))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), unix.Munmap(mem))
	}
	return &Mapping{Reader: r, mem: mem, path: path}, nil
}

// ListMapping is Mapping for the lists.
type ListMapping struct {
	*ListReader
	mem []byte
}

// OpenLists is Open for the lists.
func OpenLists(path string) (*ListMapping, error) {
	mem, err := openMem(path, listHeader*8)
	if err != nil {
		return nil, err
	}
	r, err := NewListReader(asWords(mem))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), unix.Munmap(mem))
	}
	return &ListMapping{ListReader: r, mem: mem}, nil
}

// Close unmaps.
func (m *ListMapping) Close() error { return unix.Munmap(m.mem) }

// openMem maps a regular file of at least least bytes.
func openMem(path string, least int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	const limit = 16 << 20 // far more than maxCounters counters need
	if !fi.Mode().IsRegular() || fi.Size() < least || fi.Size() > limit {
		return nil, fmt.Errorf("%s: %w: a file of %d bytes, mode %s", path, ErrFormat, fi.Size(), fi.Mode())
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	return mem, nil
}

// Live reports whether the process that wrote the file still holds it.
func (m *Mapping) Live() bool { return Live(m.path) }

// Live reports whether the process that wrote the file at path still holds it. It works for
// lists, too.
func Live(path string) bool {
	_, live := owner(path)
	return live
}

// Close unmaps.
func (m *Mapping) Close() error { return unix.Munmap(m.mem) }

// owner reports whether a process holds the file's lock, and which one.
func owner(path string) (pid int, live bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	// A read lock conflicts with the writer's lock and needs no write access.
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return 0, false
	}
	if m, err := Open(path); err == nil {
		pid = m.Snapshot().PID
		m.Close()
	} else if m, err := OpenLists(path); err == nil {
		pid = m.Info().PID
		m.Close()
	}
	return pid, true
}
