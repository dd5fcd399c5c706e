package daemon

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// ownMemory is a memory file of a process.
func ownMemory(t testing.TB, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("own", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
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

// filledMemory is ownMemory without holes, as an import wants it.
func filledMemory(t testing.TB, size int64, seals int) int {
	t.Helper()
	fd := ownMemory(t, size, seals)
	fill(t, fd, 0, int(size))
	return fd
}

// importing attaches a process that may import.
func importing(t testing.TB, d *Daemon) *proc {
	t.Helper()
	p := dialRaw(t, d)
	m := p.call(&ipc.Hello{Role: ipc.RoleClient, Features: ipc.Features, Name: "importer", Params: fewParams})
	p.fds = m.FDs
	if ok, is := m.Body.(*ipc.HelloOK); !is || ok.Features != ipc.Features {
		t.Fatalf("%+v", m.Body)
	}
	p.sock = p.call(&ipc.Bind{Addr: d.config().Listen[0]}).Body.(*ipc.BindOK).Sock
	return p
}

// fill writes to n bytes at off of a memory file.
func fill(t testing.TB, fd int, off int64, n int) {
	t.Helper()
	if _, err := unix.Pwrite(fd, make([]byte, n), off); err != nil {
		t.Fatal(err)
	}
}

// imports asks for an import and returns the answer.
func (p *proc) imports(off, n uint64, fds ...int) ipc.Body {
	p.t.Helper()
	p.id++
	p.write(ipc.AppendFrame(nil, p.id, &ipc.Import{Off: off, Len: n}), fds...)
	m, err := p.ctl.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	return m.Body
}

// TestImport: the daemon checks what a process wants it to map, whatever the library has
// checked, counts it, and gives all of it back.
func TestImport(t *testing.T) {
	d := startDaemon(t, func(c *config.Config) { c.Quota.User[config.RegisteredBytes] = 1 << 20 })
	p := importing(t, d)
	before := d.engine.Memory().Sum()
	const page = 4096
	mem, other := ownMemory(t, 1<<41, unix.F_SEAL_SHRINK), ownMemory(t, page, unix.F_SEAL_GROW)
	for _, tc := range []struct {
		off, n uint64
		fds    []int
		want   unix.Errno
		says   string
	}{
		{0, page, nil, unix.EINVAL, "without a descriptor"},
		{0, page, []int{mem, mem}, unix.EINVAL, "more than one descriptor"},
		{0, page, []int{p.fds[2]}, unix.EINVAL, "not of a memory file"},
		{0, page, []int{p.fds[1]}, unix.EACCES, "read-only"}, // the table of slots
		{0, page, []int{other}, unix.EINVAL, "the file has holes there"},
		{0, 0, []int{mem}, unix.EINVAL, "1 byte to 1 TiB"},
		{0, 1<<40 + 1, []int{mem}, unix.EINVAL, "1 byte to 1 TiB"},
		{1 << 41, 1, []int{mem}, unix.EINVAL, "the file has"},
		{1<<64 - page, 2 * page, []int{mem}, unix.EINVAL, "the file has"},
		{1, page, []int{mem}, unix.EINVAL, "not a multiple"},
		{0, 1 << 40, []int{mem}, unix.ENOBUFS, "limits.max_registered_bytes"},
	} {
		e, is := p.imports(tc.off, tc.n, tc.fds...).(*ipc.Err)
		if !is || e.Errno != uint32(tc.want) || !strings.Contains(e.Text, tc.says) {
			t.Errorf("%d bytes at %d: %+v, want %v and %q", tc.n, tc.off, e, tc.want, tc.says)
		}
	}
	if after := d.engine.Memory().Sum(); after != before {
		t.Errorf("what was refused counts: %+v, before %+v", after, before)
	}
	// Half a page counts as one, and is not reached beyond its half.
	fill(t, mem, 1<<30, page)
	ok, is := p.imports(1<<30, 100, mem).(*ipc.ImportOK)
	if !is {
		t.Fatalf("%+v", ok)
	}
	if after := d.engine.Memory().Sum(); after.Registered != before.Registered+page {
		t.Errorf("%+v, before %+v", after, before)
	}
	if e, is := p.call(&ipc.Register{Sock: p.sock, Buffer: ok.Buffer, Len: 101, Access: abi.RightRead}).Body.(*ipc.Err); !is || e.Errno != uint32(unix.EINVAL) {
		t.Errorf("beyond what was imported: %+v", e)
	}
	// Neither a hole nor the process's end harms the daemon.
	p.call(&ipc.Register{Sock: p.sock, Buffer: ok.Buffer, Len: 100, Access: abi.RightRead})
	if err := unix.Fallocate(mem, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 1<<30, page); err != nil {
		t.Error(err)
	}
	p.never("to cut imported memory short", unix.Ftruncate(mem, 0))
	p.never("to seal imported memory", func() error { _, err := unix.FcntlInt(uintptr(mem), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); return err }())
	p.close()
	eventually(t, "the process's memory is given back", func() error {
		if sum := d.engine.Memory().Sum(); sum.Maps != 0 || sum.Registered != 0 {
			return fmt.Errorf("%+v", sum)
		}
		return nil
	})
}

// Users who are not trusted may not import huge pages, and what they import counts against
// their quota.
func TestImportOfUsers(t *testing.T) {
	d := startDaemonOf(t, func(c *config.Config) { c.Quota.User[config.RegisteredBytes] = 2 << 20 }, func(c *ipc.Conn) ipc.Cred {
		id := c.Peer()
		id.UID = 1001
		return id
	})
	p := importing(t, d)
	t.Run("huge pages", func(t *testing.T) { // while the quota has room for one
		huge, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
		if err != nil {
			t.Skip("no huge pages here: ", err)
		}
		defer unix.Close(huge)
		if err := errors.Join(unix.Ftruncate(huge, 2<<20), func() error { _, err := unix.FcntlInt(uintptr(huge), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); return err }()); err != nil {
			t.Fatal(err)
		}
		if e, is := p.imports(0, 4096, huge).(*ipc.Err); !is || e.Errno != uint32(unix.EPERM) || !strings.Contains(e.Text, "huge pages") {
			t.Errorf("huge pages: %+v", e)
		}
	})
	mem := ownMemory(t, 4<<20, unix.F_SEAL_SHRINK)
	fill(t, mem, 0, 2<<20)
	if m, is := p.imports(0, 2<<20, mem).(*ipc.ImportOK); !is {
		t.Errorf("not within the quota: %+v", m)
	}
	if e, is := p.imports(2<<20, 4096, mem).(*ipc.Err); !is || e.Errno != uint32(unix.ENOBUFS) || !strings.Contains(e.Text, "quota.registered_bytes") {
		t.Errorf("above the quota: %+v", e)
	}
}

// TestImportHoles: the daemon fills no holes of what it imports. It says what to do, counts nothing, and
// what was not imported may have holes.
func TestImportHoles(t *testing.T) {
	const page = 4096
	d := startDaemon(t, nil)
	p := importing(t, d)
	mem := ownMemory(t, 8*page, unix.F_SEAL_SHRINK)
	if err := unix.Fallocate(mem, 0, 0, 8*page); err != nil {
		t.Fatal(err)
	}
	before := d.engine.Memory().Sum()
	refused := func() {
		t.Helper()
		e, is := p.imports(page, 4*page, mem).(*ipc.Err)
		if !is || e.Errno != uint32(unix.EINVAL) || !strings.Contains(e.Text, "write to each page before the import") {
			t.Errorf("%+v", e)
		}
		if after := d.engine.Memory().Sum(); after != before {
			t.Errorf("what was refused counts: %+v, before %+v", after, before)
		}
	}
	refused()
	fill(t, mem, page, 3*page)
	refused()
	fill(t, mem, 4*page, page)
	if ok, is := p.imports(page, 4*page, mem).(*ipc.ImportOK); !is {
		t.Errorf("%+v", ok)
	}
}

// TestLingeringImports: a process sends descriptors whose close takes a minute. Its own session
// ends, others are served, and the daemon ends when it is told to.
func TestLingeringImports(t *testing.T) {
	var far []net.Conn
	t.Cleanup(func() {
		for _, c := range far {
			c.Close()
		}
	})
	d := startDaemon(t, nil)
	victim := attached(t, d)
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 4 {
		p := importing(t, d)
		for range 2 {
			fd := lingering(t, l, &far)
			p.write(ipc.AppendFrame(nil, 9, &ipc.Import{Len: 1}), fd)
			unix.Close(fd)
		}
		if err := victim.ping(); err != nil {
			t.Error(err)
		}
	}
	if err := d.admission.stuck(); err != nil {
		t.Error(err)
	}
	if err := attached(t, d).ping(); err != nil {
		t.Error(err)
	}
}

// cutAt cuts a file short of which the daemon has imported all from off on.
func cutAt(t *testing.T, fd int, off int64) {
	t.Helper()
	if err := unix.Ftruncate(fd, off+1); err != nil {
		t.Error(err)
	}
}

// touchLast has the engine's thread of d write to the last byte of what a process has imported at off, behind cut. Both
// are in one turn: after it, d may find what was cut and end the session.
func touchLast(t *testing.T, d *Daemon, off uint64, cut func()) {
	t.Helper()
	var mem []byte
	for _, s := range d.admission.sessions() {
		s.memory.mu.Lock()
		for _, b := range s.memory.buffers {
			if b.off == off {
				mem = b.mem()
			}
		}
		s.memory.mu.Unlock()
	}
	if err := d.loop.ask(t.Context(), func() { cut(); mem[len(mem)-1]++ }); err != nil {
		t.Error(err)
	}
}

// TestCut: processes cut memory short that the daemon has mapped. The daemon touches it and goes on, and ends
// that session, without a long turn. A session whose memory was cut short before a planned restart ends in it, alone.
// The successor is guarded, too.
func TestCut(t *testing.T) {
	const page, size = 4096, 1 << 20
	d, uid := usersDaemon(t, nil)
	var procs [4]*proc
	var mem [4]int
	for i := range procs {
		uid.Store(uint32(1000 + i))
		procs[i] = importing(t, d)
		mem[i] = filledMemory(t, size, 0)
		off := uint64(page * i)
		if ok, is := procs[i].imports(off, size-off, mem[i]).(*ipc.ImportOK); !is {
			t.Fatalf("%+v", ok)
		}
	}
	ended := func(i int) {
		t.Helper()
		if why := procs[i].reason(); !strings.Contains(why, shm.ErrHoles.Error()) {
			t.Error(why)
		}
	}
	touchLast(t, d, 0, func() { cutAt(t, mem[0], 0) })
	ended(0)
	cutAt(t, mem[1], page)
	next, handed, taken := succeed(t, d, nil)
	if handed != nil || taken != nil {
		t.Fatal(handed, taken)
	}
	ended(1)
	touchLast(t, next, 2*page, func() { cutAt(t, mem[2], 2*page) })
	ended(2)
	touchLast(t, next, 3*page, func() {})
	if got := procs[3].call(&ipc.Alloc{Size: page}); got.Body.Type() != ipc.TypeAllocOK {
		t.Errorf("%+v", got.Body)
	}
}
