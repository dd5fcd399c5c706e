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
	m, u := NewMemory(1000, 500), Of(config.NoPolicy(), ipc.Cred{})
	for _, c := range []struct {
		shared, registered uint64
		want               error
	}{{1000, 0, nil}, {1, 0, unix.ENOBUFS}, {0, 500, nil}, {0, 1, unix.ENOBUFS}, {^uint64(0), 0, unix.ENOBUFS}, {0, ^uint64(0), unix.ENOBUFS}} {
		if err := m.Take(&u, c.shared, c.registered); !errors.Is(err, c.want) {
			t.Errorf("take(%d, %d): %v, want %v", c.shared, c.registered, err, c.want)
		}
	}
	m.Give(&u, 2, 1000, 500)
	for range maxMaps {
		if err := m.Take(&u, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Take(&u, 0, 0); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("mapping %d: %v", maxMaps+1, err)
	}
}
