//go:build !race

package rdstcp

import (
	"net/netip"
	"testing"
)

// A steady exchange allocates nothing.
func TestNoAlloc(t *testing.T) {
	here, there := netip.MustParseAddr("127.0.77.3"), netip.MustParseAddr("127.0.77.4")
	const port = 26386
	a, b := newOwner(t, port), newOwner(t, port)
	if err := b.n.Listen(there); err != nil {
		t.Fatal(err)
	}
	a.n.Dial(here, there, 0, false, 1)
	until(t, "connection", func() bool { return len(a.dialed) == 1 && len(b.accepted) == 1 }, a, b)
	pieces := [][]byte{make([]byte, 100)}
	b.got[b.accepted[0]] = make([]byte, 0, 1<<20)
	if n := testing.AllocsPerRun(200, func() {
		a.dialed[0].Write(pieces)
		a.dialed[0].Unacked()
		for had := len(b.got[b.accepted[0]]); len(b.got[b.accepted[0]]) == had; {
			b.n.Poll(b)
		}
		a.n.Poll(a)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
