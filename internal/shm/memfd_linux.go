package shm

import (
	"errors"
	"fmt"
	"os"

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
	FD  int // of CreateMemfd: the descriptor to hand over; -1 if it is closed, and after MapFD
}

// CreateMemfd makes and maps size bytes of shared memory that anybody with the descriptor
// may read and write. All pages are allocated and the size is sealed. name is what /proc
// shows. Errors name cause and cure: EMFILE, ENFILE, ENOMEM, ENOSPC, EINVAL for a size
// below 1.
func CreateMemfd(name string, size int) (*Mapping, error) {
	return createMemfd(name, size, sizeSeals)
}

// CreateMemfdReadOnly makes memory that only this mapping can write. All later mappings are
// read-only (F_SEAL_FUTURE_WRITE, Linux 5.1).
func CreateMemfdReadOnly(name string, size int) (*Mapping, error) {
	return createMemfd(name, size, sizeSeals|unix.F_SEAL_FUTURE_WRITE)
}

func createMemfd(name string, size, seals int) (_ *Mapping, err error) {
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
	m := &Mapping{FD: fd}
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
	if err := populate(fd, 0, m.Mem); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, explain("seal", err)
	}
	return m, nil
}

// populate allocates every page of mem, which is mapped from off of fd, and enters it in the
// page table. So a shortage is an error here and not a SIGBUS in the middle of a copy.
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
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shared memory: %w", explain("fstat", err))
	}
	if size < 1 || st.Size != int64(size) {
		return nil, fmt.Errorf("%w: %d bytes, announced %d", ErrMapping, st.Size, size)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&sizeSeals != sizeSeals {
		return nil, fmt.Errorf("%w: seals %#x, want %#x (SHRINK, GROW, SEAL)", ErrMapping, max(seals, 0), sizeSeals)
	}
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("shared memory of %d bytes: %w", size, explain("mmap", err))
	}
	return &Mapping{Mem: mem, FD: -1}, nil
}

// CloseFD closes the descriptor and keeps the memory.
func (m *Mapping) CloseFD() error { return closeFD(&m.FD) }

// Close unmaps the memory and closes the descriptor. Mem must not be used afterwards.
func (m *Mapping) Close() error {
	var err error
	if m.Mem != nil {
		err = os.NewSyscallError("munmap", unix.Munmap(m.Mem))
		m.Mem = nil
	}
	return errors.Join(err, closeFD(&m.FD))
}

// explain adds to the error of a failed call what to do about it.
func explain(call string, err error) error {
	err = os.NewSyscallError(call, err)
	for _, c := range []struct {
		errno error
		cure  string
	}{
		{unix.EMFILE, "this process is at its limit of open files; raise ulimit -n (LimitNOFILE=)"},
		{unix.ENFILE, "the system is at its limit of open files; raise fs.file-max"},
		{unix.ENOMEM, "not enough memory, or at the limit of the control group (MemoryMax=) or of mappings (vm.max_map_count)"},
		{unix.EFAULT, "not enough memory, or at the limit of the control group (MemoryMax=)"},
		{unix.ENOSPC, "not enough memory for shared pages"},
		{unix.EAGAIN, "at the limit of locked memory; raise ulimit -l (LimitMEMLOCK=)"},
		{unix.EPERM, "the memory was made read-only for this process"},
		{unix.EACCES, "the memory was made read-only for this process"},
	} {
		if errors.Is(err, c.errno) {
			return fmt.Errorf("%w: %s", err, c.cure)
		}
	}
	return err
}
