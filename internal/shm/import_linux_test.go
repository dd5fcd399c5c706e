package shm

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// memfd makes a memory file of size bytes with seals.
func memfd(t *testing.T, size int64, flags, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("import-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestMapImport: memory that its process cannot take away is mapped and is the same memory.
// All else is refused, with what to do.
func TestMapImport(t *testing.T) {
	const size = 4*4096 + 100
	good := memfd(t, size, 0, unix.F_SEAL_SHRINK)
	for _, tc := range []struct{ off, n, mapped uint64 }{{0, size, 5 * 4096}, {4096, 1, 4096}, {4 * 4096, 100, 4096}} {
		i, err := CheckImport(good, tc.off, tc.n)
		if err != nil {
			t.Fatal(err)
		}
		m, err := MapImport(i)
		if err != nil {
			t.Fatal(err)
		}
		if uint64(len(m.Mem)) != tc.mapped || i.Mapped() != tc.mapped || i.Huge {
			t.Errorf("%+v: %d bytes mapped, %v", tc, len(m.Mem), i)
		}
		m.Mem[0] = 77
		var b [1]byte
		if _, err := unix.Pread(good, b[:], int64(tc.off)); err != nil || b[0] != 77 {
			t.Errorf("%+v: not the file's memory (%v)", tc, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	written := memfd(t, size, 0, unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE)
	future := memfd(t, size, 0, unix.F_SEAL_SHRINK|unix.F_SEAL_FUTURE_WRITE)
	for name, tc := range map[string]struct {
		fd     int
		off, n uint64
		want   unix.Errno
		says   string
	}{
		"no file":                  {-1, 0, 1, unix.EBADF, "no open file"},
		"a file":                   {int(file.Fd()), 0, 1, unix.EINVAL, "not a memory file"},
		"a pipe":                   {pipe[0], 0, 1, unix.EINVAL, "not a memory file"},
		"sealed against writing":   {written, 0, 1, unix.EPERM, "F_SEAL_WRITE"},
		"sealed for later writing": {future, 0, 1, unix.EPERM, "F_SEAL_FUTURE_WRITE"},
		"nothing":                  {good, 0, 0, unix.EINVAL, "1 byte to 1 TiB"},
		"too much":                 {good, 0, 1<<40 + 1, unix.EINVAL, "1 byte to 1 TiB"},
		"in a page":                {good, 100, 1, unix.EINVAL, "not a multiple of the file's pages of 4096 bytes"},
		"a byte too many":          {good, 4096, size - 4095, unix.EINVAL, "the file has 16484 bytes"},
		"behind the end":           {good, 1 << 40, 1, unix.EINVAL, "the file has"},
		"beyond all numbers":       {good, 1<<64 - 4096, 4096, unix.EINVAL, "the file has"},
	} {
		if i, err := CheckImport(tc.fd, tc.off, tc.n); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %+v, %v, want %v and %q", name, i, err, tc.want, tc.says)
		}
	}
}

// shmFile makes a file of size bytes without holes in the tmpfs of shm_open. It is its owner's alone.
func shmFile(t *testing.T, size int) *os.File {
	t.Helper()
	file, err := os.CreateTemp("/dev/shm", "rdsd-test")
	if err != nil {
		t.Skip("no tmpfs at /dev/shm: ", err)
	}
	t.Cleanup(func() { file.Close() })
	if _, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0); err != nil {
		t.Skip("/dev/shm is no tmpfs: ", err)
	}
	if err := errors.Join(os.Remove(file.Name()), func() error { _, err := file.Write(make([]byte, size)); return err }()); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestGuard: what can be cut short is told apart, and found when it was, also if nobody has touched it and if it was
// made longer again. Access goes on.
func TestGuard(t *testing.T) {
	const size, page = 16 * 4096, 4096
	sealed, open := memfd(t, size, 0, unix.F_SEAL_SHRINK), memfd(t, size, 0, 0)
	for name, tc := range map[string]struct {
		fd  int
		cut bool
	}{"sealed": {sealed, false}, "memfd": {open, true}, "tmpfs": {int(shmFile(t, size).Fd()), true}} {
		t.Run(name, func(t *testing.T) {
			i, err := CheckImport(tc.fd, page, size-page)
			if err != nil || i.Cut != tc.cut {
				t.Fatalf("%+v, %v", i, err)
			}
			var maps [2]*Mapping
			for k := range maps {
				m, err := MapImport(i)
				if err == nil {
					err = errors.Join(m.Populate(nil), m.Guard())
				}
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				if m.FD = dup(t, tc.fd); (m.guard != nil) != tc.cut {
					t.Fatalf("guarded: %v", m.guard != nil)
				}
				maps[k] = m
				if err := errors.Join(i.CheckFilled(), m.CheckWhole()); err != nil {
					t.Error(err)
				}
			}
			if !tc.cut {
				return
			}
			cut := func(to int64) {
				t.Helper()
				if err := unix.Ftruncate(tc.fd, to); err != nil {
					t.Fatal(err)
				}
			}
			cut(size - 1)
			if _, err := CheckAdopted(tc.fd, page, size-page); err != nil {
				t.Errorf("it keeps a daemon from taking over: %v", err)
			}
			if _, err := CheckImport(tc.fd, page, size-page); !errors.Is(err, unix.EINVAL) {
				t.Errorf("a file that is too short: %v", err)
			}
			for _, m := range maps {
				if err := m.CheckWhole(); err != ErrHoles {
					t.Errorf("before an access: %v", err)
				}
			}
			cut(page)
			maps[0].Mem[size-page-1] = 5
			cut(size)
			fillFile(t, tc.fd, size)
			if err := maps[0].CheckWhole(); err != ErrHoles || maps[0].Mem[size-page-1] != 5 {
				t.Errorf("after an access: %v, %d", err, maps[0].Mem[size-page-1])
			}
			if err := maps[1].CheckWhole(); err != nil || maps[1].Mem[0] != 7 {
				t.Errorf("filled again: %v, %d", err, maps[1].Mem[0])
			}
		})
	}
}

// fillFile writes sevens to the whole file.
func fillFile(t *testing.T, fd, size int) {
	t.Helper()
	if _, err := unix.Pwrite(fd, bytes.Repeat([]byte{7}, size), 0); err != nil {
		t.Fatal(err)
	}
}

// A descriptor that may only be read is no memory to write into.
func TestMapImportReadOnly(t *testing.T) {
	fd := memfd(t, 4096, 0, unix.F_SEAL_SHRINK)
	ro, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ro)
	i, err := CheckImport(ro, 0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := MapImport(i); !errors.Is(err, unix.EACCES) {
		t.Errorf("%v, %v, want EACCES", m, err)
	}
}

// Huge pages are mapped in whole pages of their own size.
func TestMapImportHuge(t *testing.T) {
	fd, err := unix.MemfdCreate("import-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
	if err != nil {
		t.Skip("no huge pages: ", err)
	}
	defer unix.Close(fd)
	const page = 2 << 20
	if err := unix.Ftruncate(fd, 2*page); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckImport(fd, 4096, 1); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "pages of 2097152 bytes") {
		t.Errorf("in a huge page: %v", err)
	}
	i, err := CheckImport(fd, page, 1)
	if err != nil || !i.Huge || i.Mapped() != page {
		t.Fatalf("%+v, %v", i, err)
	}
	m, err := MapImport(i)
	if err != nil { // the pool of this machine is empty
		if !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EFAULT) {
			t.Error(err)
		}
		return
	}
	m.Mem[page-1] = 1
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
