package rds

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestCongestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		if err := b.SetRcvBuf(100); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			mustSend(t, a, string(make([]byte, 60)), b)
			synctest.Wait()
		}
		_, err := trySend(a, []byte("x"), b.LocalAddrPort())
		if !errors.Is(err, ErrCongested) || !errors.Is(err, syscall.ENOBUFS) {
			t.Fatalf("congested: %v", err)
		}
		sent := make(chan error)
		for range 3 {
			go func() {
				_, err := a.SendTo([]byte("x"), b.LocalAddrPort())
				sent <- err
			}()
		}
		got, err := a.Wait(timeout(t, time.Second), WaitSet{Relief: []netip.AddrPort{b.LocalAddrPort()}})
		if !errors.Is(err, context.DeadlineExceeded) || !got.empty() {
			t.Fatalf("Wait for relief: %+v, %v", got, err)
		}
		relief := make(chan WaitSet)
		go func() {
			got, err := a.Wait(bg(), WaitSet{Relief: []netip.AddrPort{b.LocalAddrPort()}})
			if err != nil {
				t.Error(err)
			}
			relief <- got
		}()
		synctest.Wait()
		for range 2 { // below half of the limit: relieved
			mustRecv(t, b, string(make([]byte, 60)))
		}
		for range 3 {
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
		}
		if got := <-relief; len(got.Relief) != 1 {
			t.Fatalf("%+v", got)
		}
		d.do(func() { d.setSlotCongested(d.slots[a.lastDest.slot], true) })
		a.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := a.SendTo([]byte("x"), b.LocalAddrPort()); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("congested past the deadline: %v", err)
		}
	})
}

// TestDestinations: when all slots are in use an idle one is given up.
func TestDestinations(t *testing.T) {
	d, a, b := pair(t, Options{Params: Params{Slots: 4}})
	dest := func(i int) netip.AddrPort { return netip.AddrPortFrom(d.local, uint16(5000+i)) }
	for i := range 20 {
		if _, err := a.SendTo([]byte("x"), dest(i)); err != nil {
			t.Fatal(i, err)
		}
		d.do(func() {})
	}
	if len(a.dests) > 4 {
		t.Errorf("%d destinations open with 4 slots", len(a.dests))
	}
	mustSend(t, a, "after", b)
	mustRecv(t, b, "after")
	d.do(func() { d.holdSends = true })
	for i := range 4 {
		if _, err := trySend(a, []byte("x"), dest(i)); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := trySend(a, []byte("x"), dest(9)); !errors.Is(err, ErrTooManyDestinations) {
		t.Fatalf("no idle slot: %v", err)
	}
	n := make([]Notice, 10)
	total := uint64(0)
	for _, x := range n[:a.Notices(n)] {
		if x.Kind != NoSocket {
			t.Errorf("%+v", x)
		}
		total += x.Count
	}
	if total == 0 {
		t.Error("no notice of messages to nobody")
	}
}

// TestEvictedWhileWaiting: a sender that waits for the relief of a destination
// is not forgotten when the destination's slot is given to another.
func TestEvictedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := noSpin
		o.Params.Slots = 2
		d, a, b := pair(t, o)
		mustSend(t, a, "1", b)
		mustRecv(t, b, "1")
		d.do(func() { d.setCongested(d.bound(b.LocalAddrPort()), true) })
		sent := make(chan error)
		go func() {
			_, err := a.SendTo([]byte("2"), b.LocalAddrPort())
			sent <- err
		}()
		synctest.Wait()
		for i := range 6 {
			if _, err := a.SendTo(nil, netip.AddrPortFrom(d.local, uint16(5000+i))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		d.do(func() { d.setCongested(d.bound(b.LocalAddrPort()), false) })
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		mustRecv(t, b, "2")
	})
}
