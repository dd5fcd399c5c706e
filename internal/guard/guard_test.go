package guard

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const page = 4096

// cuttable maps size bytes of a memory file that can be cut short, full of ones, and guards it.
func cuttable(t *testing.T, size int) (fd int, mem []byte, g *Guard) {
	t.Helper()
	fd, err := unix.MemfdCreate("guard-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	if mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	for i := range mem {
		mem[i] = 1
	}
	if g, err = Add(mem, page); err != nil {
		t.Skip(err)
	}
	t.Cleanup(g.Remove)
	return fd, mem, g
}

func vec(mem []byte) []unix.Iovec {
	v := unix.Iovec{}
	if len(mem) > 0 {
		v.Base = &mem[0]
	}
	v.SetLen(len(mem))
	return []unix.Iovec{{}, v}
}

func cut(t *testing.T, fd int, size int64) {
	t.Helper()
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
}

// TestCut: reads, writes and copies of memory that is gone go on. They find zeros behind the cut, and what was
// before it. Only the guard of that memory is hit, and memory behind it is not replaced.
func TestCut(t *testing.T) {
	const size = 8 * page
	fd, mem, g := cuttable(t, size)
	otherFD, other, untouched := cuttable(t, size)
	cut(t, otherFD, 0)
	before := Hits()
	cut(t, fd, 3*page)
	got := make([]byte, size)
	copy(got, mem)
	want := append(bytes.Repeat([]byte{1}, 3*page), make([]byte, 5*page)...)
	if !bytes.Equal(got, want) {
		t.Error("not ones, then zeros")
	}
	if Hits() == before || !g.Hit() || untouched.Hit() {
		t.Errorf("%d faults, before %d; hit %v, %v", Hits(), before, g.Hit(), untouched.Hit())
	}
	before = Hits()
	copy(mem[2*page:], bytes.Repeat([]byte{2}, 6*page))
	if mem[2*page] != 2 || mem[size-1] != 2 || Hits() != before {
		t.Errorf("%d, %d, %d faults, before %d", mem[2*page], mem[size-1], Hits(), before)
	}
	var b [1]byte
	if _, err := unix.Pread(fd, b[:], 2*page); err != nil || b[0] != 2 {
		t.Errorf("before the cut it is not the file: %d, %v", b[0], err)
	}
	other[5*page+7] = 9 // a write is the first access
	if !untouched.Hit() || other[5*page+7] != 9 || other[5*page+8] != 0 {
		t.Error("a write")
	}
}

// TestTouch: a system call with memory that is gone fails, and goes on behind Touch. Touch finds nothing in
// memory that is whole or not guarded.
func TestTouch(t *testing.T) {
	fd, mem, g := cuttable(t, 4*page)
	if Touch(vec(mem)) || Touch(vec(make([]byte, page))) || Touch(vec(nil)) {
		t.Error("whole memory")
	}
	cut(t, fd, page)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if _, err := unix.Write(pipe[1], mem[page:2*page]); err != unix.EFAULT {
		t.Fatalf("%v, want EFAULT", err)
	}
	if !Touch(vec(mem[page-1:page+1])) || !g.Hit() {
		t.Error("nothing touched")
	}
	if n, err := unix.Write(pipe[1], mem[page:2*page]); n != page || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if Touch(vec(mem)) {
		t.Error("touched again")
	}
}

// TestRemove: an entry is used again, and begins without a hit.
func TestRemove(t *testing.T) {
	fd, mem, g := cuttable(t, page)
	cut(t, fd, 0)
	mem[0] = 1
	again, err := Add(mem, page)
	if err != nil {
		t.Fatal(err)
	}
	again.Remove()
	next, err := Add(make([]byte, page), page)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Remove()
	if next != again || next.Hit() || !g.Hit() {
		t.Errorf("%+v, after %+v", next, again)
	}
}

// TestUnguarded: a fault in other memory ends the program as before, with Go's words.
func TestUnguarded(t *testing.T) {
	if os.Getenv("RDSD_TEST_FAULT") != "" {
		_, _, _ = cuttable(t, page)
		fd, mem, g := cuttable(t, page)
		g.Remove()
		cut(t, fd, 0)
		mem[0]++
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestUnguarded$")
	cmd.Env = append(os.Environ(), "RDSD_TEST_FAULT=1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "unexpected fault address") || !strings.Contains(string(out), "SIGBUS") {
		t.Errorf("%v\n%s", err, out)
	}
}
