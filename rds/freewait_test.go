package rds

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rdsd/rdsd/internal/ipc"
)

// TestFreeWait: the buffer is nobody's from the start, and its memory goes with
// the daemon's answer, also when the caller does not wait so long.
func TestFreeWait(t *testing.T) {
	for _, patient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := pair(t, noSpin)
			buf := mustAlloc(t, a.c, 4096)
			held := make(chan struct{})
			d.callHook = func(req any) error {
				if f, is := req.(*ipc.Free); is && f.Wait != 0 {
					<-held
				}
				return nil
			}
			ctx, stop := context.WithCancel(bg())
			defer stop()
			got := make(chan error, 1)
			go func() { got <- buf.FreeWait(ctx) }()
			synctest.Wait()
			if len(got) > 0 || buf.Bytes() != nil {
				t.Error("freed while it is in use, or still there")
			}
			if _, err := a.Send(context.Background(), &Message{From: Segment{Buf: buf, Len: 8}, Addr: b.LocalAddrPort()}); !errors.Is(err, ErrInvalid) {
				t.Errorf("a message from a buffer that is being freed: %v", err)
			}
			if err := buf.Free(); !errors.Is(err, ErrClosed) {
				t.Errorf("a second Free: %v", err)
			}
			var want error
			if !patient {
				stop()
				want = context.Canceled
				if err := <-got; !errors.Is(err, want) {
					t.Error(err)
				}
			}
			close(held)
			synctest.Wait()
			if patient {
				if err := <-got; err != nil {
					t.Error(err)
				}
			}
			if n := len(d.bufs); n != 0 {
				t.Errorf("%d buffers at the daemon", n)
			}
		})
	}
}
