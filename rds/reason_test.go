package rds

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestTimeoutReason: an operation whose time ran out, or that was cancelled, says that its host is not reached, if it
// is so; one that failed does not.
func TestTimeoutReason(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.recording(t)
	if err := a.sendOpening(d, b, new([]string)); err != nil {
		t.Fatal(err)
	}
	slot := d.table.Slot(a.dests[b.LocalAddrPort()].slot)
	for _, c := range []struct {
		reach uint8
		err   error
		says  bool
	}{
		{0, context.DeadlineExceeded, false},
		{shm.ReachTimeout, context.DeadlineExceeded, true},
		{shm.ReachTimeout, context.Canceled, true},
		{shm.ReachTimeout, ErrClosed, false},
	} {
		slot.StoreUnreachable(uint32(c.reach))
		err := a.opErr("write", b.LocalAddrPort(), c.err)
		if !errors.Is(err, c.err) || errors.Is(err, syscall.EHOSTDOWN) != c.says {
			t.Errorf("host %d: %v", c.reach, err)
		}
	}
}
