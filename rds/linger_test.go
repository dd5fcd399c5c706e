package rds

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
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
		"withdrawn":    {func(d *fakeDaemon, _ *Client) { d.do(d.giveUp) }, GaveUp, time.Second},
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

// TestCloseWaitTells: what was not delivered is an error, unless somebody has taken the news
// of it or wants none.
func TestCloseWaitTells(t *testing.T) {
	notice := func(kind uint8) func(*fakeDaemon, fakeMsg) {
		return func(d *fakeDaemon, m fakeMsg) {
			d.notice(m.slot, kind, 1)
			d.end(m, abi.StatusDropped, 0)
		}
	}
	taken := func(a *Socket) { _ = a.Notices(make([]Notice, 4)) }
	status := func(st abi.Status) func(*fakeDaemon, fakeMsg) {
		return func(d *fakeDaemon, m fakeMsg) { d.end(m, st, 0) }
	}
	for name, tt := range map[string]struct {
		op          bool
		first       func(a *Socket)
		end         func(d *fakeDaemon, m fakeMsg)
		then        func(a *Socket)
		want, errno error
	}{
		"no socket":   {false, nil, notice(shm.NoticeNoSocket), nil, NoSocket, syscall.ECONNREFUSED},
		"lost":        {false, nil, notice(shm.NoticeLost), nil, Lost, syscall.EPIPE},
		"not granted": {false, nil, notice(shm.NoticeNotGranted), nil, NotGranted, syscall.EPIPE},
		"both":        {true, nil, notice(shm.NoticeNoSocket), nil, Dropped, syscall.ECONNREFUSED},
		"peer down":   {false, nil, notice(shm.NoticePeerDown), nil, nil, nil},
		"taken":       {false, nil, notice(shm.NoticeNoSocket), taken, nil, nil},
		"not wanted":  {false, func(a *Socket) { a.SetNotices(PeerUp) }, notice(shm.NoticeNoSocket), nil, nil, nil},
		"dropped":     {true, nil, status(abi.StatusDropped), nil, Dropped, syscall.EPIPE},
		"unknown":     {true, nil, status(abi.StatusUnknown), nil, Unknown, syscall.ETIME},
		"canceled":    {true, nil, status(abi.StatusCanceled), nil, nil, nil},
		"success":     {true, nil, status(abi.StatusSuccess), nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b, local, _, r := rdmaPair(t, noSpin)
				d.do(func() { d.holdSends, d.holdOps = true, true })
				if tt.op {
					write(t, a, b.LocalAddrPort(), r, local, true)
				} else {
					mustSend(t, a, "x", b)
				}
				if tt.first != nil {
					tt.first(a)
				}
				d.do(func() {
					d.release(func(*fakeMsg) bool { return true }, func(m fakeMsg) { tt.end(d, m) })
				})
				if tt.then != nil {
					tt.then(a)
				}
				err := a.CloseWait(bg())
				if !errors.Is(err, tt.want) || !errors.Is(err, tt.errno) || tt.want == nil && err != nil {
					t.Errorf("%v, want %v", err, tt.want)
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
