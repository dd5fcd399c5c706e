package quota

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// TestMemoryBudget: memory is taken up to each limit and given back, in mappings too.
func TestMemoryBudget(t *testing.T) {
	m, u := NewMemory(MaxMaps, 1000, 500), Of(config.NoPolicy(), ipc.Cred{})
	for _, c := range []struct {
		shared, registered uint64
		want               error
	}{{1000, 0, nil}, {1, 0, unix.ENOBUFS}, {0, 500, nil}, {0, 1, unix.ENOBUFS}, {^uint64(0), 0, unix.ENOBUFS}, {0, ^uint64(0), unix.ENOBUFS}} {
		if err := m.Take(&u, c.shared, c.registered); !errors.Is(err, c.want) {
			t.Errorf("take(%d, %d): %v, want %v", c.shared, c.registered, err, c.want)
		}
	}
	m.Give(&u, 2, 1000, 500)
	for range MaxMaps {
		if err := m.Take(&u, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Take(&u, 0, 0); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("mapping %d: %v", MaxMaps+1, err)
	}
}

// TestUnreceivedWithin: what processes may leave unreceived is a part of what the kernel permits,
// and more than the answer of one process.
func TestUnreceivedWithin(t *testing.T) {
	for files, want := range map[uint64]int{1024: 512, 20_000: 1250, 1 << 20: MaxMaps, 1 << 63: MaxMaps} {
		if n := UnreceivedWithin(files); n != want {
			t.Errorf("%d files: %d descriptors, want %d", files, n, want)
		}
	}
}

// TestMapsWithin: where a process may open few files, mappings leave half of them for
// connections, and one user leaves mappings for others.
func TestMapsWithin(t *testing.T) {
	for files, want := range map[uint64]int{1024: 512, 65536: MaxMaps, 1 << 63: MaxMaps} {
		if n := MapsWithin(files); n != want {
			t.Errorf("%d files: %d mappings, want %d", files, n, want)
		}
	}
	m := NewMemory(MapsWithin(1024), 1000, 1000)
	one, other := Of(config.NoPolicy(), ipc.Cred{UID: 1001}), Of(config.NoPolicy(), ipc.Cred{UID: 1002})
	n := 0
	for m.Take(&one, 0, 0) == nil {
		n++
	}
	if n != 256 {
		t.Errorf("one user has %d mappings of 512, want half", n)
	}
	if err := m.Take(&other, 0, 0); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// TestKeep: a user keeps what it had of an earlier daemon, however much that is. It gets no
// more, and all users together have no more mappings than there may be.
func TestKeep(t *testing.T) {
	m, u := NewMemory(3, 100, 100), Of(config.NoPolicy(), ipc.Cred{UID: 1001})
	for range 2 {
		if err := m.Keep(&u, 80, 80); err != nil {
			t.Fatal(err)
		}
	}
	if sum := m.Sum(); sum != (Taken{2, 160, 160, 0}) {
		t.Errorf("%+v", sum)
	}
	if err := m.Take(&u, 1, 0); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("more: %v", err)
	}
	if err := m.Keep(&u, 0, 0); err != nil {
		t.Error(err)
	}
	if err := m.Keep(&u, 0, 0); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("a mapping too many: %v", err)
	}
	m.Give(&u, 3, 160, 160)
	if sum := m.Sum(); sum != (Taken{}) {
		t.Errorf("%+v left", sum)
	}
}
