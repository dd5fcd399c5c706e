package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCheckWhole: memory of which pages were taken away has holes. Memory that another process has
// populated, and that is only mapped here, has none.
func TestCheckWhole(t *testing.T) {
	const page, size = 4096, 1 << 20
	own, err := CreateMemfd("own", size)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := own.CheckWhole(); err != ErrHoles {
		t.Errorf("before Populate: %v", err)
	}
	if err := own.Populate(nil); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("process", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 3*size-1); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	maps := map[string]*Mapping{"own": own}
	for _, name := range []string{"import", "adopted import"} {
		i, err := CheckImport(fd, 2*size, size-1)
		if err != nil {
			t.Fatal(err)
		}
		m, err := MapImport(i)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if maps[name], m.FD = m, dup(t, fd); name == "import" {
			if err := m.Populate(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if maps["adopted"], err = AdoptMemfd(dup(t, own.FD), size); err != nil {
		t.Fatal(err)
	}
	defer maps["adopted"].Close()
	look := func(want error) {
		t.Helper()
		for name, m := range maps {
			if err := m.CheckWhole(); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	}
	look(nil)
	if _, err := unix.Seek(fd, 7, unix.SEEK_SET); err != nil {
		t.Fatal(err)
	}
	for _, hole := range []struct {
		fd  int
		off int64
	}{{fd, 3*size - page}, {own.FD, size - page}} {
		if err := unix.Fallocate(hole.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, hole.off, page); err != nil {
			t.Fatal(err)
		}
	}
	// In other parts, and behind the end, there may be any number of pages.
	if err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 4*size, size); err != nil {
		t.Fatal(err)
	}
	look(ErrHoles)
	if at, err := unix.Seek(fd, 0, unix.SEEK_CUR); at != 7 || err != nil {
		t.Errorf("the owner's position is %d, %v", at, err)
	}
}

// TestCheckFilled: a range with a page that was allocated and not written is not filled. Huge pages cannot be looked at.
func TestCheckFilled(t *testing.T) {
	const page, size = 4096, 2 << 20
	for name, flags := range map[string]int{"normal pages": 0, "huge pages": unix.MFD_HUGETLB} {
		t.Run(name, func(t *testing.T) {
			fd, err := unix.MemfdCreate("process", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
			if err != nil && flags != 0 {
				t.Skip("no huge pages here: ", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.Ftruncate(fd, 2*size); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
				t.Fatal(err)
			}
			i, err := CheckImport(fd, size, size)
			if err != nil {
				t.Fatal(err)
			}
			if flags != 0 {
				if err := i.CheckFilled(); err != nil {
					t.Error(err)
				}
				return
			}
			if err := unix.Fallocate(fd, 0, 0, 2*size); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Pwrite(fd, make([]byte, size-page), size); err != nil {
				t.Fatal(err)
			}
			if err := i.CheckFilled(); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "MADV_POPULATE_WRITE") {
				t.Errorf("without its last page: %v", err)
			}
			if _, err := unix.Pwrite(fd, []byte{1}, 2*size-page); err != nil {
				t.Fatal(err)
			}
			if err := i.CheckFilled(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCheckWaitsForNobody: the search takes no lock of an imported file, so it needs not open the file either.
func TestCheckWaitsForNobody(t *testing.T) {
	const page, size = 4096, 1 << 20
	fd, err := unix.MemfdCreate("process", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Cachestat(uint(fd), &unix.CachestatRange{}, &unix.Cachestat_t{}, 0); err != nil {
		t.Skip("before Linux 6.5: ", err)
	}
	if err := unix.Ftruncate(fd, 3*size-1); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	i, err := CheckImport(fd, 2*size, size-1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := MapImport(i)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.FD = dup(t, fd); m.Populate(nil) != nil {
		t.Fatal("no memory")
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(again)
	if _, err := unix.FcntlInt(uintptr(again), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckWhole(); err != nil {
		t.Error(err)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 3*size-page, page); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckWhole(); err != ErrHoles {
		t.Error(err)
	}
}

// TestCheckUnseen: nobody waits for the owner of a file with a lease, and nothing is imported of it.
func TestCheckUnseen(t *testing.T) {
	fd, err := unix.MemfdCreate("process", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckImport(fd, 0, 4096); err != nil {
		t.Fatal(err)
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(again)
	if _, err := unix.FcntlInt(uintptr(again), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckImport(fd, 0, 4096); !errors.Is(err, ErrUnseen) {
		t.Errorf("%v", err)
	}
}

// TestCheckPrivate: holes of a file that only its owner may open are seen, too.
func TestCheckPrivate(t *testing.T) {
	const page, size = 4096, 1 << 20
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	fd := int(shmFile(t, 2*size).Fd()) // mode 0600
	if err := unix.Cachestat(uint(fd), &unix.CachestatRange{}, &unix.Cachestat_t{}, 0); err != nil {
		t.Skip("before Linux 6.5: ", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Error(err)
			return
		}
		if own, err := openToLook(fd); !errors.Is(err, ErrUnseen) {
			t.Errorf("it can be opened: %d, %v", own, err)
		}
		i, err := CheckImport(fd, size, size)
		if err != nil {
			t.Error(err)
			return
		}
		if err := i.CheckFilled(); err != nil {
			t.Error(err)
		}
		if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 2*size-page, page); err != nil {
			t.Error(err)
		}
		if err := i.CheckFilled(); !errors.Is(err, unix.EINVAL) {
			t.Errorf("with a hole: %v", err)
		}
	}()
	<-done
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
