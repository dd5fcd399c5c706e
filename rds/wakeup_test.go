package rds

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestWakeUpForAnother: a receiver that is woken for a second message while it
// leaves with a first one, or wakes itself in place of another, passes that on.
func TestWakeUpForAnother(t *testing.T) {
	for _, peek := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, a, b := pair(t, noSpin)
			p := make([]byte, 16)
			var e shm.Event
			w := b.enter(wantMessage, false)
			v := b.enter(wantMessage, false)
			for _, r := range []*waiter{w, v} { // both look again, and find nothing
				b.c.rx.mu.Lock()
				if _, done, err := b.tryRecv(receive{p: p, e: &e}); done || err != nil || r.signalled.Load() {
					t.Fatal(done, err)
				}
			}
			mustSend(t, a, "1", b)
			synctest.Wait()
			// w looks once more before it parks, and finds the first message.
			b.c.rx.mu.Lock()
			if n, done, err := b.tryRecv(receive{p: p, e: &e, peek: peek}); !done || err != nil || string(p[:n]) != "1" {
				t.Fatal(n, done, err)
			}
			mustSend(t, a, "2", b)
			synctest.Wait()
			b.c.rx.poll() // the leader hands the second one to w, which leaves
			b.endRecv(&w)
			if b.rxq.len() == 0 || !v.signalled.Load() {
				t.Errorf("%d messages are queued, another receiver waits and nobody wakes it", b.rxq.len())
			}
			b.endRecv(&v)
		})
	}
}

// TestWaitStatusOfNone: Wait for a completion that is not to come says so at
// once, as WaitOp does.
func TestWaitStatusOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b, local, _, r := rdmaPair(t, noSpin)
		to := b.LocalAddrPort()
		wait := func(id uint64) error {
			_, err := a.Wait(bg(), WaitSet{Message: true, Status: []OpRef{{to.Addr(), id}}})
			return err
		}
		silent, told := write(t, a, to, r, local, false), write(t, a, to, r, local, true)
		for _, id := range []uint64{silent, told + 1} {
			if err := wait(id); !errors.Is(err, ErrInvalid) {
				t.Errorf("operation %d: %v", id, err)
			}
		}
		if err := wait(told); err != nil {
			t.Error(err)
		}
		if _, err := a.WaitOp(bg(), to.Addr(), told); err != nil {
			t.Fatal(err)
		}
		if err := wait(told); !errors.Is(err, ErrInvalid) {
			t.Errorf("an operation whose completion was taken: %v", err)
		}
		// One is taken by another while Wait waits.
		d.do(func() { d.holdOps = true })
		told = write(t, a, to, r, local, true)
		got := make(chan error)
		go func() { got <- wait(told) }()
		synctest.Wait()
		a.disown(OpRef{netip.MustParseAddr("127.0.0.1"), told})
		if err := <-got; !errors.Is(err, ErrInvalid) {
			t.Errorf("an operation that is not awaited any more: %v", err)
		}
	})
}
