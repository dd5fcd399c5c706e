package rds

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
)

// TestSlotsGiveWay: a send finds no slot only while none is idle.
func TestSlotsGiveWay(t *testing.T) {
	d, a, _ := pair(t, Options{Params: Params{Slots: 4}})
	d.do(func() { d.holdSends = true })
	to := func(i int) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), uint16(100+i)) }
	for i := range 4 {
		if _, err := a.SendTo([]byte("x"), to(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.SendTo([]byte("x"), to(4)); !errors.Is(err, ErrTooManyDestinations) || !errors.Is(err, syscall.EMLINK) {
		t.Errorf("with messages to all of them: %v", err)
	}
	d.do(func() {
		d.holdSends = false
		d.release(func(*fakeMsg) bool { return true }, d.finish)
	})
	for i := range 20 {
		if _, err := a.SendTo([]byte("x"), to(4+i)); err != nil {
			t.Fatalf("destination %d, with idle ones: %v", 4+i, err)
		}
		d.do(func() {})
	}
}

// TestCellsStay: a barrier cell is its socket's until the socket is closed, for the ids
// of operations never start again.
func TestCellsStay(t *testing.T) {
	d, a, _ := pair(t, Options{Params: Params{Cells: 2}})
	to := func(i byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 10 + i}), 7) }
	for i := range byte(2) {
		if _, err := a.SendTo(nil, to(i)); err != nil {
			t.Fatal(err)
		}
		d.do(func() {})
		if err := a.CancelSentTo(to(i)); err != nil {
			t.Fatal(err)
		}
		d.do(func() {})
		if err := a.CloseDest(to(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.SendTo(nil, to(2)); !errors.Is(err, ErrTooManyDestinations) {
		t.Errorf("a third address: %v", err)
	}
	if _, err := a.SendTo(nil, to(1)); err != nil {
		t.Errorf("one of the two: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := bindFake(t, a.c, "127.0.0.1:4100")
	if _, err := b.SendTo(nil, to(2)); err != nil {
		t.Errorf("after the socket was closed: %v", err)
	}
}
