package rds

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

// TestPendingKeepsSlot: a destination keeps its slot while a message to it is
// pending, also when all slots are in use and another destination wants one.
func TestPendingKeepsSlot(t *testing.T) {
	d, a, _ := pair(t, Options{Params: Params{Slots: 4}})
	dest := func(i int) netip.AddrPort { return netip.AddrPortFrom(d.local, uint16(5000+i)) }
	send := func(i int) error {
		_, err := trySend(a, fmt.Append(nil, i), dest(i))
		d.do(func() {}) // the daemon knows the destination now
		return err
	}
	for i := range 4 {
		if err := send(i); err != nil {
			t.Fatal(i, err)
		}
	}
	d.do(func() { d.holdSends = true })
	for i := range 4 {
		if err := send(i); err != nil {
			t.Fatal(i, err)
		}
	}
	for i := 4; i < 8; i++ {
		if err := send(i); !errors.Is(err, ErrTooManyDestinations) {
			t.Fatalf("destination %d got the slot of one with a message pending: %v", i, err)
		}
	}
}
