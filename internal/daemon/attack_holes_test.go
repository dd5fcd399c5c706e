package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

func punch(t *testing.T, fd int, off, n int64) {
	t.Helper()
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n); err != nil {
		t.Fatal(err)
	}
}

// longTurn has the engine turn for longer than longNs, and the daemon look for holes.
func longTurn(t *testing.T, d *Daemon) {
	t.Helper()
	if err := d.loop.ask(t.Context(), func() {
		for from := time.Now(); time.Since(from) <= 2*longNs; {
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestHoles: after a long turn the sessions end whose processes have taken away pages that the
// daemon has mapped, whatever these belong to. Their user waits before its processes
// come back. Holes in what the daemon has not mapped, or has let go of, are nobody's affair.
func TestHoles(t *testing.T) {
	const page, size = 4096, 1 << 20
	for _, tc := range []struct {
		name  string
		punch func(t *testing.T, p *proc)
	}{
		{"rings", func(t *testing.T, p *proc) { punch(t, p.fds[0], int64(shm.SegmentSize(p.p))-page, page) }},
		{"send window", func(t *testing.T, p *proc) { punch(t, p.fds[4], shm.WindowSize-page, page) }},
		{"buffer", func(t *testing.T, p *proc) {
			m := p.call(&ipc.Alloc{Size: size})
			defer m.CloseFDs()
			punch(t, m.FDs[0], size/2, page)
		}},
		{"import", func(t *testing.T, p *proc) {
			mem := ownMemory(t, 4*size, unix.F_SEAL_SHRINK)
			fill(t, mem, size, size)
			if ok, is := p.imports(size, size, mem).(*ipc.ImportOK); !is {
				t.Fatalf("%+v", ok)
			}
			// As many pages as before, in all.
			if err := unix.Fallocate(mem, unix.FALLOC_FL_KEEP_SIZE, 3*size, size); err != nil {
				t.Fatal(err)
			}
			punch(t, mem, 2*size-page, page)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, uid := usersDaemon(t, nil)
			uid.Store(1001)
			innocent := importing(t, d)
			mem := ownMemory(t, 4*size, unix.F_SEAL_SHRINK)
			fill(t, mem, size, 3*size)
			if ok, is := innocent.imports(size, size, mem).(*ipc.ImportOK); !is {
				t.Fatalf("%+v", ok)
			}
			punch(t, mem, 2*size, size)
			freed := innocent.imports(3*size, size-1, mem).(*ipc.ImportOK)
			if got := innocent.call(&ipc.Free{Buffer: freed.Buffer}); got.Body.Type() != ipc.TypeOK {
				t.Fatalf("%+v", got.Body)
			}
			punch(t, mem, 3*size, size)

			uid.Store(1000)
			another, p := attached(t, d), attached(t, d)
			if tc.name == "import" {
				p = importing(t, d)
				m := p.call(&ipc.Alloc{Size: size})
				m.CloseFDs()
			}
			tc.punch(t, p)
			longTurn(t, d)
			if why := p.reason(); !strings.Contains(why, shm.ErrHoles.Error()) {
				t.Fatal(why)
			}
			again := dialRaw(t, d).call(&ipc.Hello{Role: ipc.RoleClient, Params: fewParams})
			if e, is := again.Body.(*ipc.Err); !is || e.Errno != uint32(unix.EUSERS) || !strings.Contains(e.Text, "admitted again in") {
				t.Errorf("the user's next process: %+v", again.Body)
			}
			d.endHoled()
			if err := another.ping(); err != nil {
				t.Errorf("another process of the user: %v", err)
			}
			if got := innocent.call(&ipc.Alloc{Size: page}); got.Body.Type() != ipc.TypeAllocOK {
				t.Errorf("another user: %+v", got.Body)
			}
			uid.Store(1001)
			attached(t, d)
		})
	}
}
