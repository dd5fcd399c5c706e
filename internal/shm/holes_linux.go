package shm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHoles says that pages of shared memory are gone that Populate has allocated.
var ErrHoles = errors.New("memory with holes: pages were taken away (ftruncate, fallocate, MADV_REMOVE) while the daemon has them mapped")

// ErrUnseen says that nobody but its owner can see whether a file has holes.
var ErrUnseen = errors.New("the daemon cannot open the memory file for reading, to look for holes; leave it readable for all (fchmod) and without a lease")

// CheckWhole returns ErrHoles if pages of m that Populate has allocated are gone, because somebody who
// may write the file has taken them away. Swapped pages, and pages that nobody has touched through m, are
// not gone. m.FD must be open. ErrUnseen: the owner of an imported file has made it so.
//
// A file of the daemon's own is as long as the mapping, nobody can change its size, and the kernel
// counts its pages. Of an imported file the mapping may be a part, and its owner can allocate pages in
// other parts and behind its end, so the range is looked through. A guard may have replaced pages.
func (m *Mapping) CheckWhole() error {
	if m.guard.Hit() {
		return ErrHoles
	}
	if m.imported != nil {
		return m.imported.checkWhole(m.FD)
	}
	var st unix.Stat_t
	if err := unix.Fstat(m.FD, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Blocks*512 < int64(len(m.Mem)) {
		return ErrHoles
	}
	return nil
}

// CheckFilled returns EINVAL, with what to do, if pages of i are missing in the file, so that whoever maps it
// would allocate them in its own memory cgroup. It finds nothing in huge pages, and before Linux 5.14, where
// memory that was populated looks like holes. It waits for whoever changes the file.
func (i *Import) CheckFilled() error {
	err := i.seekHole(i.fd)
	if errors.Is(err, ErrHoles) {
		return fmt.Errorf("import %d bytes at %d: %w: the file has holes there; write to each page before the import (madvise MADV_POPULATE_WRITE; fallocate alone is not enough)", i.n, i.off, unix.EINVAL)
	}
	return err
}

// checkWhole is CheckWhole of imported memory, of which fd is the file. In huge pages, and before Linux 5.14, it finds only
// that the file was cut short.
func (i *Import) checkWhole(fd int) error {
	if i.Cut {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return os.NewSyscallError("fstat", err)
		}
		if st.Size < i.off+int64(i.n) {
			return ErrHoles
		}
	}
	if i.Huge {
		return nil
	}
	missing, err := i.missing(fd)
	if err != nil {
		return i.seekHole(fd)
	}
	if missing {
		missing, err = i.missing(fd) // pages may have moved
	}
	if missing {
		return ErrHoles
	}
	return err
}

// missing reports whether pages of i are neither in memory nor swapped. It takes no lock of the file: its owner could keep
// such a lock for seconds, again and again (fallocate). It fails before Linux 6.5, and where a filter does not have cachestat.
func (i *Import) missing(fd int) (bool, error) {
	at, is := unix.CachestatRange{Off: uint64(i.off), Len: i.Mapped()}, unix.Cachestat_t{}
	if err := unix.Cachestat(uint(fd), &at, &is, 0); err != nil {
		return false, os.NewSyscallError("cachestat", err)
	}
	return is.Cache+is.Evicted < i.Mapped()/i.page, nil
}

// seekHole returns ErrHoles if i has pages that are missing, or that nobody has filled. It finds nothing in huge pages, and
// before Linux 5.14, where Populate allocates pages and does not fill them.
func (i *Import) seekHole(fd int) error {
	if i.Huge || !canPopulate() {
		return nil
	}
	// Another open file than the owner's: that one's position is the owner's, and the owner can lock it.
	own, err := openToLook(fd)
	if err != nil && i.seenAnyway(fd, err) {
		if missing, _ := i.missing(fd); missing {
			return ErrHoles
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(own)
	at, err := unix.Seek(own, i.off, unix.SEEK_HOLE)
	if err != nil {
		return os.NewSyscallError("lseek", err)
	}
	if at < i.off+int64(i.n) {
		return ErrHoles
	}
	return nil
}

// openToLook opens the file of fd for reading, and waits for nobody.
func openToLook(fd int) (int, error) {
	own, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == unix.EACCES || err == unix.EPERM || err == unix.EAGAIN {
		err = fmt.Errorf("%w: %w", err, ErrUnseen)
	}
	return own, err
}

// seenAnyway reports whether holes of i can be found although its file could not be opened, because of err. A file that
// is its owner's alone, as shm_open makes it, can be seen through fd, the owner's descriptor.
func (i *Import) seenAnyway(fd int, err error) bool {
	if !errors.Is(err, unix.EACCES) {
		return false
	}
	_, err = i.missing(fd)
	return err == nil
}

// canPopulate reports whether the kernel has MADV_POPULATE_WRITE.
func canPopulate() bool {
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Munmap(mem) }()
	return unix.Madvise(mem, unix.MADV_POPULATE_WRITE) == nil
}
