package rds

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestNoticeText: a notice prints what happened, where, how often and why.
func TestNoticeText(t *testing.T) {
	to := netip.MustParseAddrPort("10.0.0.2:5000")
	for _, c := range []struct {
		n    Notice
		want string
	}{
		{Notice{Kind: Lost, To: to, Count: 3}, "{lost 10.0.0.2:5000 3 no reason}"},
		{Notice{Kind: PeerUp, To: to}, "{peer up 10.0.0.2:5000 0 no reason}"},
		{Notice{Kind: Unreachable, To: to, Count: 1, Reason: Reason(shm.ReachRefused)}, "{unreachable 10.0.0.2:5000 1 host not reached: no daemon listens there}"},
		{Notice{Kind: Unreachable, To: to, Count: 1, Reason: Reason(shm.ReachRejected)},
			"{unreachable 10.0.0.2:5000 1 host not reached: its daemon rejects this host (rdsctl ping says why, with both versions if they differ)}"},
		{Notice{Kind: Unreachable, To: to, Reason: 200}, "{unreachable 10.0.0.2:5000 0 host not reached: reason 200}"},
	} {
		if got := fmt.Sprint(c.n); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if r := Reason(0); r.Error() != "no reason" || errors.Is(r, syscall.EHOSTUNREACH) {
		t.Errorf("%v", r)
	}
}

// TestRefusalText: the error of an operation that this host's daemon refused says why, and is its errno.
func TestRefusalText(t *testing.T) {
	for errno, text := range map[syscall.Errno]string{syscall.EINVAL: "cookie is of no region", syscall.EACCES: "not granted to this socket's port", syscall.ERANGE: "beyond the end"} {
		err := Completion{Status: RemoteError, Errno: errno}.Err()
		if !errors.Is(err, errno) || !errors.Is(err, RemoteError) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := (Completion{Status: OtherError, Errno: syscall.EINVAL}).Err(); strings.Contains(err.Error(), "cookie") {
		t.Errorf("%v", err)
	}
}
