package shm

import (
	"errors"
	"fmt"
	"os"

	"github.com/rdsd/rdsd/internal/guard"
	"golang.org/x/sys/unix"
)

// sizeSeals are set on every memfd, so that neither side can change its size.
const sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// ErrMapping says that a descriptor is not the announced memory: it has another size or is
// not sealed.
var ErrMapping = errors.New("not a sealed memory file of the announced size")

// Mapping is mapped shared memory. Only Close unmaps it.
type Mapping struct {
	Mem []byte
	FD  int // to read and write it; -1: Close closes none

	read int   // the same file, opened for reading; -1: there is none
	file int   // of Mem; the mapping has it if it is FD
	off  int64 // of Mem in the file

	imported *Import      // what it is of; nil: a file that the daemon made
	guard    *guard.Guard // nil: none
}

// CreateMemfd makes and maps size bytes of shared memory that anybody with the descriptor
// may read and write. The size is sealed, and no page is allocated: see Populate. name is what
// /proc shows. Errors name cause and cure: EMFILE, ENFILE, ENOMEM, EINVAL for a size below 1.
func CreateMemfd(name string, size int) (*Mapping, error) {
	return createMemfd(name, size, false)
}

// CreateMemfdReadOnly makes memory of which Give is a descriptor opened for reading. The
// file has mode 0400: only processes of its maker's user, and root, can open it again for
// writing. ENOENT: /proc is not mounted.
func CreateMemfdReadOnly(name string, size int) (*Mapping, error) {
	return createMemfd(name, size, true)
}

func createMemfd(name string, size int, readOnly bool) (_ *Mapping, err error) {
	if size < 1 {
		return nil, fmt.Errorf("shared memory %q of %d bytes: %w", name, size, unix.EINVAL)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("shared memory %q of %d bytes: %w", name, size, err)
		}
	}()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, explain("memfd_create", err)
	}
	m := &Mapping{FD: fd, read: -1, file: fd}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, explain("ftruncate", err)
	}
	if m.Mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, explain("mmap", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals); err != nil {
		return nil, explain("seal", err)
	}
	if readOnly {
		err = m.openForReading()
	}
	return m, err
}

// openForReading makes the descriptor that Give returns. Others than the file's owner cannot
// open it again.
func (m *Mapping) openForReading() (err error) {
	if err := unix.Fchmod(m.FD, 0o400); err != nil {
		return explain("fchmod", err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d", m.FD)
	if m.read, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		m.read = -1
		return explain("open "+path, err)
	}
	return nil
}

// pieceSize is how much Populate allocates between two looks, bytes.
const pieceSize = 16 << 20

// Populate allocates every page of m and enters it in the page table. So a shortage is an error
// here and not a SIGBUS in the middle of a copy. It calls goOn, which may be nil, before each 16
// MiB, and ends with goOn's error. The descriptor that m was made of must be open. Errors: ENOMEM,
// ENOSPC.
func (m *Mapping) Populate(goOn func() error) error {
	for at := 0; at < len(m.Mem); at += pieceSize {
		if goOn != nil {
			if err := goOn(); err != nil {
				return err
			}
		}
		if err := populate(m.file, m.off+int64(at), m.Mem[at:min(at+pieceSize, len(m.Mem))]); err != nil {
			return fmt.Errorf("shared memory of %d bytes: %w", len(m.Mem), err)
		}
	}
	return nil
}

// populate allocates every page of mem, which is mapped from off of fd, and enters it in the
// page table.
func populate(fd int, off int64, mem []byte) error {
	err := ignoringEINTR(func() error { return unix.Madvise(mem, unix.MADV_POPULATE_WRITE) })
	if err == unix.EINVAL { // before Linux 5.14
		err = ignoringEINTR(func() error { return unix.Fallocate(fd, 0, off, int64(len(mem))) })
	}
	if err != nil {
		return explain("populate", err)
	}
	return nil
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// MapFD maps a descriptor that the daemon sent, if it is size bytes long and sealed. The
// caller keeps fd and may close it at once. Errors: ErrMapping; EACCES or EPERM if writable
// is wanted and the memory is read-only; ENOMEM.
func MapFD(fd int, size int, writable bool) (*Mapping, error) {
	if err := checkSealed(fd, size); err != nil {
		return nil, err
	}
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("shared memory of %d bytes: %w", size, explain("mmap", err))
	}
	return &Mapping{Mem: mem, FD: -1, read: -1}, nil
}

// AdoptMemfd maps memory that CreateMemfd or CreateMemfdReadOnly made in another process. fd
// is the FD that the other process had. No page is allocated or entered in the page table.
// The mapping has fd from then on. After an error fd is still the caller's. Errors:
// ErrMapping, EACCES, EPERM, ENOMEM.
func AdoptMemfd(fd int, size int) (*Mapping, error) {
	if err := checkSealed(fd, size); err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("shared memory: %w", explain("fstatfs", err))
	}
	if fs.Type == unix.HUGETLBFS_MAGIC {
		return nil, fmt.Errorf("%w: it has huge pages", ErrMapping)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shared memory of %d bytes: %w", size, explain("mmap", err))
	}
	return &Mapping{Mem: mem, FD: fd, read: -1}, nil
}

// checkSealed returns an error unless fd is a memory file of size bytes, of which nobody can
// change the size.
func checkSealed(fd int, size int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("shared memory: %w", explain("fstat", err))
	}
	if size < 1 || st.Size != int64(size) {
		return fmt.Errorf("%w: %d bytes, announced %d", ErrMapping, st.Size, size)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&sizeSeals != sizeSeals {
		return fmt.Errorf("%w: seals %#x, want %#x (SHRINK, GROW, SEAL)", ErrMapping, max(seals, 0), sizeSeals)
	}
	return nil
}

// Give returns the descriptor for the other process: FD, or of CreateMemfdReadOnly one that
// is opened for reading. It stays the mapping's.
func (m *Mapping) Give() int {
	if m.read >= 0 {
		return m.read
	}
	return m.FD
}

// Given closes the descriptor that was opened for reading, if there is one. Give must not be
// called again.
func (m *Mapping) Given() error { return closeFD(&m.read) }

// Take moves the mapping and its descriptors to the Mapping that it returns. m has none of them
// from then on.
func (m *Mapping) Take() *Mapping {
	own := *m
	m.Mem, m.FD, m.read, m.guard = nil, -1, -1, nil
	return &own
}

// Close unmaps the memory and closes the descriptors. Mem must not be used afterwards.
func (m *Mapping) Close() error {
	var err error
	m.guard.Remove()
	if m.guard = nil; m.Mem != nil {
		err = os.NewSyscallError("munmap", unix.Munmap(m.Mem))
		m.Mem = nil
	}
	return errors.Join(err, closeFD(&m.FD), closeFD(&m.read))
}

// Discard gives the pages of the file back, and closes the mapping. Another process that has
// the file mapped still reads zeros there. What it touches is then made for it: it counts in
// its own cgroup, as memory that it maps itself.
func (m *Mapping) Discard() error {
	var err error
	if m.Mem != nil && m.FD >= 0 {
		err = os.NewSyscallError("fallocate", ignoringEINTR(func() error {
			return unix.Fallocate(m.FD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(m.Mem)+os.Getpagesize()-1)&^int64(os.Getpagesize()-1))
		}))
	}
	return errors.Join(err, m.Close())
}

// explain adds to the error of a failed call what to do about it.
func explain(call string, err error) error {
	err = os.NewSyscallError(call, err)
	for _, c := range []struct {
		errno error
		cure  string
	}{
		{unix.EMFILE, "at the limit of open files of the process; raise ulimit -n (LimitNOFILE=)"},
		{unix.ENFILE, "the system is at its limit of open files; raise fs.file-max"},
		{unix.ENOMEM, "not enough memory, or at the limit of the control group (MemoryMax=) or of mappings (vm.max_map_count)"},
		{unix.EFAULT, "not enough memory, or at the limit of the control group (MemoryMax=)"},
		{unix.ENOSPC, "not enough memory for shared pages"},
		{unix.EAGAIN, "at the limit of locked memory; raise ulimit -l (LimitMEMLOCK=)"},
		{unix.EPERM, "the memory was made read-only for this process"},
		{unix.EACCES, "the memory was made read-only for this process"},
		{unix.ENOENT, "/proc has to be mounted"},
	} {
		if errors.Is(err, c.errno) {
			return fmt.Errorf("%w: %s", err, c.cure)
		}
	}
	return err
}
