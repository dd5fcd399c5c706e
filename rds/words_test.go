package rds

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
)

// TestAtomicWhileAlloc: the context of an atomic operation bounds its wait for
// local memory, too, and that of others beside it.
func TestAtomicWhileAlloc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		buf := mustAlloc(t, a.c, 64)
		r, err := b.Register(buf, 0, 8, AllowAtomic)
		if err != nil {
			t.Fatal(err)
		}
		slow, allocs := make(chan struct{}), 0
		d.callHook = func(req any) error {
			if _, is := req.(*ipc.Alloc); is {
				allocs++
				<-slow
			}
			return nil
		}
		add := func(ctx context.Context) error {
			_, err := a.Atomic(ctx, b.LocalAddrPort(), &Atomic{Cookie: r.Cookie(), Add: 1})
			return err
		}
		patient := make(chan error, 1)
		go func() { patient <- add(bg()) }()
		for range 2 {
			if err := add(timeout(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		close(slow)
		if err := <-patient; err != nil || allocs != 1 {
			t.Errorf("%v, with %d allocations", err, allocs)
		}
	})
}
