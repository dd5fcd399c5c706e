package shm

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Import is memory of a process that the daemon is to map: bytes of a file whose owner
// cannot take them away.
type Import struct {
	Huge bool // of huge pages

	fd   int
	off  int64
	n    uint64
	page uint64
}

// errSealed says that a file has a seal against writing.
var errSealed = errors.New("the file is sealed against writing (F_SEAL_WRITE or F_SEAL_FUTURE_WRITE)")

// CheckImport checks that n bytes at off of the file fd can be mapped for good: the file is
// memory, cannot shrink and may be written, and has these bytes, which begin with a page.
// The error is EINVAL or EPERM, and says what to do.
func CheckImport(fd int, off, n uint64) (*Import, error) { return checkImport(fd, off, n, false) }

// checkImport is CheckImport. late says that the file may have a seal against writing.
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
		return bad("%w: not a memory file of memfd_create or hugetlbfs; a mapping of another file can block or end the daemon", unix.EINVAL)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return bad("%w: the file can be cut short; create it with MFD_ALLOW_SEALING and add the seal F_SEAL_SHRINK (a file of a mounted tmpfs or hugetlbfs takes no seals)", unix.EPERM)
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
	i := &Import{fd: fd, off: int64(off), n: n, page: uint64(os.Getpagesize())}
	if fs.Type == unix.HUGETLBFS_MAGIC {
		i.Huge, i.page = true, uint64(fs.Bsize)
	}
	switch {
	case n == 0 || n > 1<<40:
		return bad("%w: a buffer has 1 byte to 1 TiB", unix.EINVAL)
	case off > math.MaxInt64-n || off+n > uint64(st.Size):
		return bad("%w: the file has %d bytes", unix.EINVAL, st.Size)
	case off%i.page != 0:
		return bad("%w: the offset is not a multiple of the file's pages of %d bytes", unix.EINVAL, i.page)
	}
	if !late && !i.Huge {
		own, err := openToLook(fd)
		if err != nil {
			return bad("%w", err)
		}
		_ = unix.Close(own)
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
// owner may have sealed it against writing since then.
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

func (i *Import) mapped(how int) (*Mapping, error) {
	mem, err := unix.Mmap(i.fd, i.off, int(i.Mapped()), unix.PROT_READ|unix.PROT_WRITE, how)
	if err != nil {
		return nil, fmt.Errorf("import %d bytes: %w", i.n, explain("mmap", err))
	}
	return &Mapping{Mem: mem, FD: -1, read: -1, file: i.fd, off: i.off, imported: i}, nil
}
