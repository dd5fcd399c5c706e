package rds

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestCloseWait: it ends when all is acknowledged, when the context does, or
// when the daemon goes.
func TestCloseWait(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(d *fakeDaemon, c *Client)
		want error
		took time.Duration
	}{
		"acknowledged": {func(d *fakeDaemon, _ *Client) {
			d.do(func() { d.release(func(*fakeMsg) bool { return true }, d.finish) })
		}, nil, time.Second},
		"withdrawn":    {func(d *fakeDaemon, _ *Client) { d.do(d.giveUp) }, nil, time.Second},
		"never":        {func(*fakeDaemon, *Client) {}, context.DeadlineExceeded, time.Minute},
		"daemon gone":  {func(d *fakeDaemon, _ *Client) { d.die(nil) }, ErrDaemonGone, time.Second},
		"client ended": {func(_ *fakeDaemon, c *Client) { c.Close() }, ErrClosed, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := pair(t, noSpin)
				d.do(func() { d.holdSends = true })
				for range 3 {
					if _, err := a.Send(context.Background(), &Message{Payload: []byte("last words"), Addr: b.LocalAddrPort(), GiveUpAfter: time.Hour}); err != nil {
						t.Fatal(err)
					}
				}
				reader := make(chan error)
				go func() { reader <- second(a.Wait(bg(), WaitSet{Message: true})) }()
				closed := make(chan error)
				began := time.Now()
				go func() { closed <- a.CloseWait(timeout(t, time.Minute)) }()
				if err := <-reader; !errors.Is(err, ErrClosed) {
					t.Errorf("a reader meanwhile: %v", err)
				}
				if _, err := a.SendTo(nil, b.LocalAddrPort()); !errors.Is(err, ErrClosed) {
					t.Errorf("a send meanwhile: %v", err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				select {
				case err := <-closed:
					t.Fatalf("closed with messages on their way: %v", err)
				default:
				}
				tt.end(d, a.c)
				if err := <-closed; !errors.Is(err, tt.want) || tt.want == nil && err != nil {
					t.Errorf("%v, want %v", err, tt.want)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if err := a.Close(); !errors.Is(err, ErrClosed) {
					t.Errorf("closed again: %v", err)
				}
				if a.c.Err() == nil {
					bindFake(t, a.c, "127.0.0.1:4000") // its port is free
				}
			})
		})
	}
}

// TestCloseWaitGivesBack: what a socket that waits to close has not read, and
// what still comes, holds no memory: others of its client may need it for what
// it waits for.
func TestCloseWaitGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		var free int
		d.do(func() { free = len(d.rxFree) })
		mustSend(t, b, "unread", a)
		mustSend(t, b, "unread", a)
		synctest.Wait()
		if err := b.Recv(DontWait, &Received{}); !errors.Is(err, ErrWouldBlock) { // puts them into a's queue
			t.Fatal(err)
		}
		d.do(func() { d.holdSends = true })
		mustSend(t, a, "held", b)
		closed := make(chan error)
		go func() { closed <- a.CloseWait(bg()) }()
		synctest.Wait()
		unread := func(when string) {
			t.Helper()
			d.do(func() {
				if n := free - len(d.rxFree); n != 0 {
					t.Errorf("%s: %d receive ids are not given back", when, n)
				}
			})
		}
		unread("what was there")
		d.do(func() { d.holdSends = false })
		mustSend(t, b, "late", a)
		synctest.Wait()
		unread("what came later")
		d.do(func() { d.release(func(*fakeMsg) bool { return true }, d.finish) })
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}
