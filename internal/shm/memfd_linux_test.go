package shm

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func openFDs(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

func TestMemfd(t *testing.T) {
	before := openFDs(t)
	m, err := CreateMemfd("rdsd-test", 3*4096)
	if err != nil {
		t.Fatal(err)
	}
	m.Mem[5] = 1
	peer, err := MapFD(m.FD, 3*4096, true)
	if err != nil {
		t.Fatal(err)
	}
	if peer.Mem[5] != 1 {
		t.Error("the two mappings are not the same memory")
	}
	peer.Mem[6] = 2
	if m.Mem[6] != 2 {
		t.Error("the peer's write is not seen")
	}
	for name, size := range map[string]int64{"shrink": 4096, "grow": 4 * 4096} {
		if err := unix.Ftruncate(m.FD, size); err != unix.EPERM {
			t.Errorf("%s: %v, want EPERM by the seal", name, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(m.FD), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != unix.EPERM {
		t.Errorf("another seal: %v, want EPERM", err)
	}
	if err := m.Populate(nil); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(m.FD, &st); err != nil || st.Blocks*512 < st.Size {
		t.Errorf("%d of %d bytes are allocated (%v)", st.Blocks*512, st.Size, err)
	}
	if flags, _ := unix.FcntlInt(uintptr(m.FD), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
		t.Error("descriptor is inherited over exec")
	}
	if err := errors.Join(peer.Close(), m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func TestMemfdReadOnly(t *testing.T) {
	m, err := CreateMemfdReadOnly("rdsd-test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	given := m.Give()
	if w, err := MapFD(given, 4096, true); !errors.Is(err, unix.EACCES) {
		t.Fatalf("mapped writable: %v, %v", w, err)
	}
	if _, err := unix.Pwrite(given, []byte{1}, 0); err != unix.EBADF {
		t.Errorf("write: %v, want EBADF", err)
	}
	if err := unix.Fallocate(given, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err != unix.EBADF {
		t.Errorf("a hole: %v, want EBADF", err)
	}
	r, err := MapFD(given, 4096, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := reopenAsAnother(t, given); err != unix.EACCES {
		t.Errorf("another user opens it for writing: %v, want EACCES", err)
	}
	if err := m.Given(); err != nil || m.Give() != m.FD {
		t.Errorf("%v, and %d is still given, the mapping's is %d", err, m.Give(), m.FD)
	}
	if err := unix.Mprotect(r.Mem, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("the read-only mapping was made writable")
	}
	m.Mem[0] = 9 // its maker can still write
	if r.Mem[0] != 9 {
		t.Error("the maker's write is not seen")
	}
}

// reopenAsAnother opens fd for writing as a user that did not make it.
func reopenAsAnother(t *testing.T, fd int) (err error) {
	if os.Geteuid() != 0 {
		t.Log("not root: nobody else to be")
		return unix.EACCES
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err = unix.Setfsuid(65534); err != nil {
			return
		}
		var again int
		if again, err = unix.Open("/proc/thread-self/fd/"+strconv.Itoa(fd), unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(again)
		}
	}()
	<-done
	return err
}

// A process that takes over from the maker maps the memory for writing.
func TestAdoptMemfd(t *testing.T) {
	before := openFDs(t)
	for name, create := range map[string]func(string, int) (*Mapping, error){"both write": CreateMemfd, "one writes": CreateMemfdReadOnly} {
		m, err := create("rdsd-test", 8192)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(uintptr(m.FD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := AdoptMemfd(fd, 4096); !errors.Is(err, ErrMapping) {
			t.Errorf("%s: of another size: %v, %v", name, a, err)
		}
		a, err := AdoptMemfd(fd, 8192)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if a.FD != fd || a.Give() != fd {
			t.Errorf("%s: has %d, gives %d, want %d", name, a.FD, a.Give(), fd)
		}
		a.Mem[0] = 7
		if err := a.Close(); err != nil || m.Mem[0] != 7 {
			t.Errorf("%s: %v, the maker sees %d", name, err, m.Mem[0])
		}
		m.Close()
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if a, err := AdoptMemfd(int(file.Fd()), 8192); err == nil {
		t.Errorf("a file was adopted: %v", a)
	}
	if after := openFDs(t); after != before+1 {
		t.Errorf("%d descriptors open, want %d", after, before+1)
	}
}

func TestMapFDRefuses(t *testing.T) {
	before := openFDs(t)
	good, err := CreateMemfd("rdsd-test", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	bare, err := unix.MemfdCreate("rdsd-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bare)
	if err := unix.Ftruncate(bare, 8192); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		fd, size int
		is       error
		says     string
	}{
		"too large":    {good.FD, 16384, ErrMapping, "8192 bytes, announced 16384"},
		"too small":    {good.FD, 4096, ErrMapping, "8192 bytes, announced 4096"},
		"zero":         {good.FD, 0, ErrMapping, "announced 0"},
		"not sealed":   {bare, 8192, ErrMapping, "seals"},
		"regular file": {int(file.Fd()), 8192, ErrMapping, "seals"},
		"no file":      {-1, 8192, unix.EBADF, "fstat"},
	} {
		m, err := MapFD(tc.fd, tc.size, true)
		if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, %v; want %v with %q", name, m, err, tc.is, tc.says)
		}
	}
	if after := openFDs(t); after != before+3 {
		t.Errorf("%d descriptors open, want %d", after, before+3)
	}
}

// A shortage is an error that names the resource, and nothing is left behind.
func TestMemfdShortage(t *testing.T) {
	if _, err := CreateMemfd("rdsd-test", 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("size 0: %v", err)
	}
	before := openFDs(t)
	if m, err := CreateMemfd("rdsd-test", 1<<55); err == nil || !strings.Contains(err.Error(), "36028797018963968 bytes") {
		t.Errorf("32 PiB: %v, %v", m, err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}

	// With the limit at the number of open descriptors, each call that needs one says what
	// to raise.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	_, errMem := CreateMemfd("rdsd-test", 4096)
	_, errBell := NewDoorbell()
	_, errWait := NewFDWaiter(0, nil)
	for name, err := range map[string]error{"memfd": errMem, "doorbell": errBell, "waiter": errWait} {
		if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("%s: %v, want EMFILE and its cure", name, err)
		}
	}
}

// TestPopulate: memory is populated piece by piece, and whoever waits for it may end that between
// two of them.
func TestPopulate(t *testing.T) {
	const size = 3*pieceSize + 4096
	m, err := CreateMemfd("rdsd-test", size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	has := func(want int64) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Fstat(m.FD, &st); err != nil || st.Blocks*512 != want {
			t.Errorf("%d bytes are allocated, not %d (%v)", st.Blocks*512, want, err)
		}
	}
	has(0)
	enough, pieces := errors.New("enough"), 0
	goOn := func() error {
		has(int64(pieces * pieceSize))
		if pieces++; pieces > 2 {
			return enough
		}
		return nil
	}
	if err := m.Populate(goOn); err != enough {
		t.Error(err)
	}
	has(2 * pieceSize)
	if err := m.Populate(nil); err != nil {
		t.Error(err)
	}
	has(size)
	i, err := CheckImport(m.FD, pieceSize, pieceSize+1)
	if err != nil {
		t.Fatal(err)
	}
	own, err := MapImport(i)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := unix.Fallocate(m.FD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
		t.Fatal(err)
	}
	if err := own.Populate(nil); err != nil {
		t.Error(err)
	}
	has(pieceSize + 4096)
}
