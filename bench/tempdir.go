package main

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dirPrefix = "rdsd-bench"
	lockName  = "lock" // not the directory itself: the daemons lock that
)

// tempDir is a directory for control sockets. It is locked while its bench
// lives: what a bench that was killed left behind is not, and is removed by the
// next one.
type tempDir struct {
	path string
	lock *os.File
}

func newTempDir() (*tempDir, error) {
	removeStale(os.TempDir())
	path, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return nil, err
	}
	d := &tempDir{path: path}
	if d.lock, err = os.Create(filepath.Join(path, lockName)); err == nil {
		err = unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *tempDir) close() {
	os.RemoveAll(d.path)
	if d.lock != nil {
		d.lock.Close()
	}
}

// removeStale removes this user's abandoned directories in parent. One that was
// made a moment ago may not be locked yet: an empty one is left alone for a
// while.
func removeStale(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Getuid() {
			continue
		}
		if abandoned(dir) {
			os.RemoveAll(dir)
		}
	}
}

// abandoned reports whether nobody holds the lock of dir, or it has none.
func abandoned(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err == nil {
		defer f.Close()
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	}
	names, err := os.ReadDir(dir)
	st, statErr := os.Stat(dir)
	return err == nil && statErr == nil && (len(names) > 0 || time.Since(st.ModTime()) > time.Minute)
}
