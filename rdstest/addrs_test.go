package rdstest_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/rdstest"
)

// TestAnyAddress: a socket bound to any address has the one of its daemon.
func TestAnyAddress(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)[1]
	c := d.Open(t)
	if addrs, err := c.Addrs(); err != nil || !slices.Equal(addrs, []netip.Addr{d.Addr()}) {
		t.Errorf("addresses %v, %v, want %v", addrs, err, d.Addr())
	}
	s, err := c.Bind(netip.MustParseAddrPort("0.0.0.0:0"))
	if err != nil || s.LocalAddrPort().Addr() != d.Addr() || s.LocalAddrPort().Port() == 0 {
		t.Fatalf("bound to any address: %v", err)
	}
}
