package main

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dirPrefix = "rdsd-bench"
	lockName  = "lock" // a file, because the daemons lock the directory
)

// tempDir is a directory for control sockets. It is locked while its bench lives. The next bench
// removes directories without a lock, which a killed bench has left.
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

// removeStale removes this user's abandoned directories in parent. It leaves a new empty one,
// which may not be locked yet.
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

// abandoned reports whether no process holds the lock of dir.
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
