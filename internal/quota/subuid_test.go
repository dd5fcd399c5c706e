package quota

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// TestSubordinateUIDs: the uids of one range of /etc/subuid and the user that has it are one
// user for quotas and shares.
func TestSubordinateUIDs(t *testing.T) {
	subs, warnings := config.ParseSubUIDs([]byte("1000:100000:65536\n"))
	if len(warnings) > 0 {
		t.Fatal(warnings)
	}
	p := config.NoPolicy()
	p.Subs = subs
	p.Quotas.User[config.RegisteredBytes] = 10
	m := NewMemory(8, 1000, 1000)
	uids := []User{Of(p, ipc.Cred{UID: 1000}), Of(p, ipc.Cred{UID: 100000}), Of(p, ipc.Cred{UID: 165535})}
	n := 0
	for i := range 8 {
		if m.Take(&uids[i%len(uids)], 1, 0) == nil {
			n++
		}
	}
	if n != 4 {
		t.Errorf("a user with subordinate uids has %d mappings of 8, want half", n)
	}
	other := Of(p, ipc.Cred{UID: 1001})
	if err := m.Take(&other, 1, 10); err != nil {
		t.Errorf("another user: %v", err)
	}
	m.Give(&uids[1], 4, 4, 0)
	if err := m.Take(&uids[0], 0, 6); err != nil {
		t.Error(err)
	}
	if err := m.Take(&uids[1], 0, 5); !errors.Is(err, unix.ENOBUFS) || !strings.Contains(err.Error(), "uid 1000 (with 100000") {
		t.Errorf("beyond the quota of the user: %v", err)
	}
	if sum := m.OfUsers(); len(sum) != 2 || sum[config.UserAccount(1000)] != (Taken{1, 0, 6, 0}) {
		t.Errorf("%+v", sum)
	}
}
