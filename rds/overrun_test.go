package rds

import (
	"errors"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestOverrunKeepsSent: a socket that was overrun receives and sends no more, and
// what it has sent runs to its end: its operations, and CloseWait, are waited for.
func TestOverrunKeepsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b, local, _, r := rdmaPair(t, noSpin)
		to := b.LocalAddrPort()
		d.do(func() { d.holdOps = true })
		id := write(t, a, to, r, local, true)
		if _, err := a.SendTo([]byte("x"), stuckAt(1)); err != nil {
			t.Fatal(err)
		}
		d.do(func() {
			n := &shm.EventNotice{Kind: shm.EvOverrun, Sock: a.handle}
			d.event(*(*shm.Entry)(unsafe.Pointer(n)))
		})
		if _, err := a.Wait(bg(), WaitSet{Message: true}); !errors.Is(err, ErrOverrun) {
			t.Error("wait for a message:", err)
		}
		if _, err := a.SendTo([]byte("x"), to); !errors.Is(err, ErrOverrun) {
			t.Error("send:", err)
		}
		op := OpRef{to.Addr(), id}
		waits := map[string]func() error{
			"barrier":        func() error { _, err := a.Barrier(bg(), op.Addr, id); return err },
			"wait for both":  func() error { _, err := a.Wait(bg(), WaitSet{Status: []OpRef{op}, Op: []OpRef{op}}); return err },
			"wait for one":   func() error { _, err := a.Wait(bg(), WaitSet{Op: []OpRef{op}}); return err },
			"all operations": func() error { return a.BarrierAll(bg()) },
		}
		type end struct {
			name string
			err  error
		}
		ends := make(chan end, len(waits)+1)
		for name, f := range waits {
			go func() { ends <- end{name, f()} }()
		}
		synctest.Wait()
		if len(ends) > 0 {
			t.Error("before its end:", <-ends)
		}
		d.do(func() { d.release(func(m *fakeMsg) bool { return m.ops != nil }, d.finish) })
		for range waits {
			if e := <-ends; e.err != nil {
				t.Error(e)
			}
		}
		if c, err := a.WaitOp(bg(), op.Addr, id); err != nil || c.Status != Success {
			t.Error(c, err)
		}
		go func() { ends <- end{"close", a.CloseWait(bg())} }()
		synctest.Wait()
		if len(ends) > 0 {
			t.Error("before the ack:", <-ends)
		}
		d.releaseTo(stuckAt(1))
		if e := <-ends; e.err != nil {
			t.Error(e)
		}
	})
}
