//go:build ibv && linux

package ibv_test

import (
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/ibv"
	"github.com/rdsd/rdsd/verbs/verbstest"
)

// envA and envB name two addresses of RDMA devices of this machine.
const envA, envB = "RDSD_IBV_A", "RDSD_IBV_B"

// TestConformance runs the suite between the two addresses. test/vmlab/ibv runs it on
// soft-RoCE and soft-iWARP.
func TestConformance(t *testing.T) {
	a, b := address(t, envA), address(t, envB)
	dev := open(t, a)
	driver := dev.Driver()
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	mem := &memory{t: t}
	verbstest.Memory = mem.alloc
	verbstest.Run(t, nil, func(t *testing.T) verbstest.Env {
		mem.t = t
		t.Cleanup(mem.free)
		env := openPair(t, a, b)
		env.Habits = habits[driver]
		return env
	})
}

func address(t *testing.T, env string) netip.Addr {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		t.Skip("needs RDMA devices: make vm VM=./test/vmlab/ibv")
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func open(t *testing.T, a netip.Addr) *ibv.Device {
	t.Helper()
	d, err := ibv.Open(ibv.Options{Addr: a})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func openPair(t *testing.T, a, b netip.Addr) verbstest.Env {
	devA, devB := open(t, a), open(t, b)
	l, err := devB.Listen(netip.AddrPortFrom(b, 0))
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return verbstest.Env{
		A: devA, B: devB, AddrA: netip.AddrPortFrom(a, 0), AddrB: netip.AddrPortFrom(b, 0), Dead: dead,
		Step: func() bool {
			if a, b := devA.Progress(), devB.Progress(); a || b {
				return true
			}
			fds := []unix.PollFd{{Fd: int32(devA.FD()), Events: unix.POLLIN}, {Fd: int32(devB.FD()), Events: unix.POLLIN}}
			const ms = 15 // an emulated machine is slow
			unix.Poll(fds, ms)
			return false
		},
	}
}

// memory maps shared memory, as the daemon does, until its test ends.
type memory struct {
	t    *testing.T
	maps [][]byte
}

func (m *memory) alloc(n int) []byte {
	fd, err := unix.MemfdCreate("verbstest", unix.MFD_CLOEXEC)
	if err != nil {
		m.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		m.t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.t.Fatal(err)
	}
	m.maps = append(m.maps, b)
	return b
}

// free runs after the devices were closed, because it was deferred first.
func (m *memory) free() {
	for _, b := range m.maps {
		unix.Munmap(b)
	}
	m.maps = nil
}

var _ = verbs.WCSuccess
