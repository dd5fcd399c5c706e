package rds

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
)

// TestCloseDest: a destination closes when nothing is under way to it, and the
// next send opens it anew; ids of operations go on.
func TestCloseDest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b, local, _, r := rdmaPair(t, noSpin)
		to := b.LocalAddrPort()
		if err := a.CloseDest(to); err != nil {
			t.Errorf("of a destination never used: %v", err)
		}
		d.do(func() { d.holdOps = true })
		id := write(t, a, to, r, local, true)
		if err := a.CloseDest(to); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("with an operation under way: %v", err)
		}
		d.do(func() {
			d.holdOps = false
			d.release(func(*fakeMsg) bool { return true }, d.finish)
		})
		open := func() (n int) {
			d.do(func() {
				for _, sl := range d.slots {
					if sl != nil {
						n++
					}
				}
			})
			return n
		}
		if n := open(); n != 1 {
			t.Fatalf("%d destinations are open", n)
		}
		if err := a.CloseDest(to); err != nil || open() != 0 || len(a.dests) != 0 {
			t.Errorf("%v: %d destinations are open, %d known", err, open(), len(a.dests))
		}
		if got := a.HWM(to.Addr()); got != id {
			t.Errorf("high-water mark %d after the close, want %d", got, id)
		}
		if next := write(t, a, to, r, local, true); next != id+1 || open() != 1 {
			t.Errorf("operation %d, %d destinations are open", next, open())
		}
		// One that the daemon does not know yet.
		a.c.tx.mu.Lock()
		_, err := a.c.tx.dest(a, stuckAt(2))
		a.c.tx.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- a.CloseDest(stuckAt(2)) }()
		synctest.Wait()
		mustSend(t, a, "publishes the opening", b)
		if err := <-closed; err != nil || open() != 1 {
			t.Errorf("%v, %d destinations are open", err, open())
		}
		a.Close()
		if err := a.CloseDest(to); !errors.Is(err, ErrClosed) {
			t.Errorf("of a closed socket: %v", err)
		}
	})
}
