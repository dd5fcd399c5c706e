package rds

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
)

// TestRefusedHoldNobody: messages that wait for a congested destination leave
// the send buffer to the others, whether the sender polls, or was waiting in a
// send or for space when it became congested; and count again when it is
// relieved.
func TestRefusedHoldNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		a.SetSndBuf(1000)
		stuck := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 7)
		fill := func() {
			t.Helper()
			for range 10 {
				if _, err := trySend(a, make([]byte, 100), stuck); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := trySend(a, []byte("x"), b.LocalAddrPort()); !errors.Is(err, ErrWouldBlock) {
				t.Fatalf("beyond the send buffer: %v", err)
			}
		}
		congest := func(on bool) {
			d.do(func() { d.setSlotCongested(d.slots[a.dests[stuck].slot], on) })
			synctest.Wait()
		}
		fill()
		sent, space := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := a.SendTo([]byte("y"), b.LocalAddrPort())
			sent <- err
		}()
		go func() {
			_, err := a.Wait(bg(), WaitSet{SendSpace: true})
			space <- err
		}()
		synctest.Wait()
		if len(sent)+len(space) != 0 {
			t.Fatal("a full send buffer held nobody")
		}
		congest(true)
		for name, c := range map[string]chan error{"send": sent, "wait for space": space} {
			select {
			case err := <-c:
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			default:
				t.Errorf("%s still waits for the congested destination", name)
			}
		}
		mustRecv(t, b, "y")
		if _, err := trySend(a, []byte("x"), stuck); !errors.Is(err, ErrCongested) {
			t.Errorf("to the congested destination: %v", err)
		}
		congest(false)
		if _, err := trySend(a, []byte("x"), stuck); !errors.Is(err, ErrWouldBlock) || errors.Is(err, ErrCongested) {
			t.Errorf("relieved, with the send buffer full: %v", err)
		}
		d.do(func() { d.release(func(*fakeMsg) bool { return true }, func(m fakeMsg) { d.ack(m.sub.MsgID) }) })
		synctest.Wait()
		fill() // the whole of it, as before
		if a.queued != 1000 || a.parked != 0 || len(a.busy) != 1 {
			t.Errorf("%d bytes queued, %d of them parked, %d destinations busy", a.queued, a.parked, len(a.busy))
		}
		d.do(func() { d.release(func(*fakeMsg) bool { return true }, func(m fakeMsg) { d.ack(m.sub.MsgID) }) })
	})
}

// TestReturnsReachLateWaiter: a process that slept for messages alone is rung
// for returned ones once somebody in it waits for them.
func TestReturnsReachLateWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		a.SetSndBuf(100)
		got := make(chan error, 1)
		go func() {
			_, _, err := b.RecvFrom(make([]byte, 8))
			got <- err
		}()
		synctest.Wait() // it leads, and sleeps
		far := netip.MustParseAddrPort("192.0.2.1:7")
		if _, err := a.SendTo(make([]byte, 100), far); err != nil {
			t.Fatal(err)
		}
		d.do(func() { d.release(func(*fakeMsg) bool { return true }, func(m fakeMsg) { d.ack(m.sub.MsgID) }) })
		synctest.Wait()
		if d.rings != 0 {
			t.Errorf("%d rings for a message that nobody waited for", d.rings)
		}
		if _, err := a.SendTo(make([]byte, 100), far); err != nil {
			t.Fatal(err) // it looks before it waits
		}
		sent := make(chan error, 1)
		go func() {
			_, err := a.SendTo(make([]byte, 100), far)
			sent <- err
		}()
		synctest.Wait()
		if len(sent) > 0 {
			t.Fatal("a full send buffer held nobody")
		}
		all := func() {
			d.do(func() { d.release(func(*fakeMsg) bool { return true }, func(m fakeMsg) { d.ack(m.sub.MsgID) }) })
			synctest.Wait()
		}
		all()
		if len(sent) == 0 {
			t.Fatal("the sender was not told of the returned message")
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		all()
		mustSend(t, a, "x", b)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
