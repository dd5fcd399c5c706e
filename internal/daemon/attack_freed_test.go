package daemon

import (
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// TestFreedMemory: memory that a process keeps mapped when it counts no more, after Free and
// after the session's end, has no pages.
func TestFreedMemory(t *testing.T) {
	d := startDaemon(t, nil)
	p := attached(t, d)
	m := p.call(&ipc.Alloc{Size: 1<<20 + 1})
	kept, err := shm.MapFD(m.FDs[0], 1<<20+4096, true)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	defer m.CloseFDs()
	gone := func(what string, fd int) {
		t.Helper()
		eventually(t, what, func() error {
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				t.Fatal(err)
			}
			if st.Blocks != 0 {
				return fmt.Errorf("%d blocks", st.Blocks)
			}
			return nil
		})
	}
	if got := p.call(&ipc.Free{Buffer: m.Body.(*ipc.AllocOK).Buffer}); got.Body.Type() != ipc.TypeOK {
		t.Fatalf("Free: %+v", got.Body)
	}
	gone("a freed buffer has no pages", m.FDs[0])
	if kept.Mem[0] != 0 {
		t.Error("it has its content")
	}
	another := p.call(&ipc.Alloc{Size: 1 << 20})
	defer another.CloseFDs()
	p.write(rawFrame(0xffff, 0, 1))
	for i, fd := range append([]int{another.FDs[0], p.fds[0], p.fds[1]}, p.fds[4:]...) {
		gone(fmt.Sprintf("memory %d of a session that has ended has no pages", i), fd)
	}
}

// TestDeliveredStays: what a process has been given stays readable when the daemon ends.
func TestDeliveredStays(t *testing.T) {
	d := startDaemon(t, nil)
	p := attached(t, d)
	m := p.call(&ipc.Alloc{Size: 1 << 16})
	defer m.CloseFDs()
	d.admission.end(errShutdown)
	eventually(t, "the daemon has let go of it", func() error {
		if s := d.engine.Memory().Sum(); s.Maps != 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	for _, fd := range append([]int{m.FDs[0]}, p.fds[4:]...) {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Blocks == 0 {
			t.Errorf("%d blocks, %v", st.Blocks, err)
		}
	}
	if n := len(d.admission.open); n != 0 {
		t.Errorf("%d sessions", n)
	}
}
