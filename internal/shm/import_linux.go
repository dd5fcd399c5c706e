package shm

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/rdsd/rdsd/internal/guard"
	"golang.org/x/sys/unix"
)

// Import is memory of a process that the daemon is to map: bytes of a memory file.
type Import struct {
	Huge bool // of huge pages
	Cut  bool // the file can be cut short: it has no seal against shrinking

	fd   int
	off  int64
	n    uint64
	page uint64
}

// errSealed says that a file has a seal against writing.
var errSealed = errors.New("the file is sealed against writing (F_SEAL_WRITE or F_SEAL_FUTURE_WRITE)")

// CheckImport checks that n bytes at off of the file fd can be mapped for good: the file is
// memory, so that no access waits for another program. It may be written, and has these bytes,
// which begin with a page. The error is EINVAL or EPERM, and says what to do.
func CheckImport(fd int, off, n uint64) (*Import, error) { return checkImport(fd, off, n, false) }

// checkImport is CheckImport. late says that the file may have a seal against writing, or may have been cut short.
func checkImport(fd int, off, n uint64, late bool) (*Import, error) {
	bad := func(format string, args ...any) (*Import, error) {
		return nil, fmt.Errorf("import %d bytes at %d: %w", n, off, fmt.Errorf(format, args...))
	}
	// The kernel alone answers this, and only for memory files.
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == unix.EBADF {
		return bad("%w: no open file", err)
	}
	if err != nil {
		return bad("%w: not a memory file: use memfd_create, shm_open, or a file of tmpfs or hugetlbfs; access to a mapping of another file can wait for a disk or a program", unix.EINVAL)
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 && !late {
		return bad("%w: %w", unix.EPERM, errSealed)
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(fd, &st); err != nil {
		return bad("%w", os.NewSyscallError("fstat", err))
	}
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return bad("%w", os.NewSyscallError("fstatfs", err))
	}
	i := &Import{Cut: seals&unix.F_SEAL_SHRINK == 0, fd: fd, off: int64(off), n: n, page: uint64(os.Getpagesize())}
	if fs.Type == unix.HUGETLBFS_MAGIC {
		i.Huge, i.page = true, uint64(fs.Bsize)
	}
	switch {
	case n == 0 || n > 1<<40:
		return bad("%w: a buffer has 1 byte to 1 TiB", unix.EINVAL)
	case off > math.MaxInt64-n || off+n > uint64(st.Size) && !(late && i.Cut):
		return bad("%w: the file has %d bytes", unix.EINVAL, st.Size)
	case off%i.page != 0:
		return bad("%w: the offset is not a multiple of the file's pages of %d bytes", unix.EINVAL, i.page)
	}
	if !late && !i.Huge {
		if own, err := openToLook(fd); err == nil {
			_ = unix.Close(own)
		} else if !i.seenAnyway(fd, err) {
			return bad("%w", err)
		}
	}
	return i, nil
}

// Mapped is how many bytes are mapped: whole pages.
func (i *Import) Mapped() uint64 { return (i.n + i.page - 1) &^ (i.page - 1) }

// MapImport maps i. No page is allocated: see Mapping.Populate. The caller keeps the descriptor: a caller that
// sets Mapping.FD to it has Close close it. Errors: ENOMEM; EPERM or EACCES if the descriptor
// or the file may not be written.
func MapImport(i *Import) (*Mapping, error) { return i.mapped(unix.MAP_SHARED) }

// CheckAdopted is CheckImport of memory that another process has mapped with MapImport. Its
// owner may have sealed it against writing since then, or cut it short.
func CheckAdopted(fd int, off, n uint64) (*Import, error) { return checkImport(fd, off, n, true) }

// AdoptImport is MapImport of memory that another process has mapped with MapImport. No page
// is allocated or entered in the page table. sealed is the error of memory that its owner has
// sealed against writing since then. It is mapped all the same, but the owner does not see what
// is written there.
func AdoptImport(i *Import) (m *Mapping, sealed, err error) {
	if m, err = i.mapped(unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
		return m, nil, err
	}
	m, err = i.mapped(unix.MAP_PRIVATE)
	return m, fmt.Errorf("import %d bytes at %d: %w: %w", i.n, i.off, unix.EPERM, errSealed), err
}

// Guard keeps the program running when it touches pages of m that are gone, until Close: see package guard. It does
// nothing if m is of a file that cannot be cut short and has pages of normal size.
func (m *Mapping) Guard() (err error) {
	if i := m.imported; i != nil && (i.Cut || i.Huge) {
		m.guard, err = guard.Add(m.Mem, i.page)
	}
	return err
}

func (i *Import) mapped(how int) (*Mapping, error) {
	mem, err := unix.Mmap(i.fd, i.off, int(i.Mapped()), unix.PROT_READ|unix.PROT_WRITE, how)
	if err != nil {
		return nil, fmt.Errorf("import %d bytes: %w", i.n, explain("mmap", err))
	}
	return &Mapping{Mem: mem, FD: -1, read: -1, file: i.fd, off: i.off, imported: i}, nil
}
