package rds

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/rdsd/rdsd/internal/ipc"
)

// TestReleaseOvertaken: the daemon knows nothing of a region any more whose
// socket closed while Release was on its way. To the caller that is ErrClosed,
// as after Close, and only then: otherwise EINVAL stays what it is.
func TestReleaseOvertaken(t *testing.T) {
	for _, closes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d, a, _ := pair(t, noSpin)
			r, err := a.Register(mustAlloc(t, a.c, 4096), 0, 64, AllowRead)
			if err != nil {
				t.Fatal(err)
			}
			held := make(chan struct{})
			d.callHook = func(req any) error {
				if _, is := req.(*ipc.Release); !is {
					return nil
				}
				<-held
				return &ipc.Err{Errno: uint32(syscall.EINVAL), Text: "no such region"}
			}
			got := make(chan error, 1)
			go func() { got <- r.Release(bg()) }()
			synctest.Wait()
			if closes {
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
			}
			close(held)
			if err := <-got; errors.Is(err, ErrClosed) != closes || errors.Is(err, syscall.EINVAL) == closes {
				t.Errorf("closed %v: Release: %v", closes, err)
			}
		})
	}
}
