package quota

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"golang.org/x/sys/unix"
)

// TestSharedLimits: of a shared resource the first user gets half, the next user half of
// the rest, an administrator everything that is left.
func TestSharedLimits(t *testing.T) {
	for _, tc := range []struct {
		trusted         bool
		own, all, limit int
		ok              bool
	}{
		{false, 0, 0, 10, true}, {false, 4, 4, 10, true}, {false, 5, 5, 10, false}, {true, 5, 5, 10, true},
		{false, 0, 9, 10, true}, {false, 1, 9, 10, false}, {true, 9, 9, 10, true}, {true, 10, 10, 10, false}, {false, 0, 10, 10, false},
	} {
		u := User{UID: 7, Account: config.UserAccount(7), Trusted: tc.trusted}
		if err := u.MayShare("things", tc.own, tc.all, tc.limit); (err == nil) != tc.ok || err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Errorf("%+v: %v", tc, err)
		}
		if share := u.Share(tc.own, tc.all, tc.limit); (tc.own < share) != tc.ok {
			t.Errorf("%+v: a share of %d", tc, share)
		}
	}
}
