package rds

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestAddrs(t *testing.T) {
	c, d := openFake(t, Options{})
	one, two, six := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1")
	d.addrs = []netip.Addr{six, one}
	if got, err := c.Addrs(); err != nil || !slices.Equal(got, d.addrs) {
		t.Fatalf("Addrs: %v, %v", got, err)
	}
	for ap, want := range map[string]netip.AddrPort{
		"0.0.0.0:4000":        netip.AddrPortFrom(one, 4000),
		"[::]:4000":           netip.AddrPortFrom(six, 4000),
		"[::ffff:0.0.0.0]:41": netip.AddrPortFrom(one, 41),
	} {
		if s, err := c.Bind(netip.MustParseAddrPort(ap)); err != nil || s.LocalAddrPort() != want {
			t.Errorf("Bind(%s): %v, want a socket at %v", ap, err, want)
		}
	}
	if s, err := c.Bind(netip.MustParseAddrPort("0.0.0.0:0")); err != nil || s.LocalAddrPort().Addr() != one || s.LocalAddrPort().Port() == 0 {
		t.Errorf("Bind to any address and port: %v", err)
	}

	d.addrs = []netip.Addr{one, two}
	_, err := c.Bind(netip.MustParseAddrPort("0.0.0.0:4001"))
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "127.0.0.1, 127.0.0.2") || !strings.Contains(err.Error(), "bind 0.0.0.0:4001") {
		t.Errorf("Bind to one of several addresses: %v", err)
	}
	_, err = c.Bind(netip.MustParseAddrPort("[::]:4001"))
	if !errors.Is(err, syscall.EADDRNOTAVAIL) || !strings.Contains(err.Error(), `["127.0.0.1" "127.0.0.2"]`) {
		t.Errorf("Bind to an address of a family that the daemon has not: %v", err)
	}

	c.tellsAddrs = false
	if _, err := c.Addrs(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Addrs of an older daemon: %v", err)
	}
	if _, err := c.Bind(netip.MustParseAddrPort("0.0.0.0:4002")); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("Bind to any address of an older daemon: %v", err)
	}
	_ = c.Close()
	if _, err := c.Addrs(); !errors.Is(err, ErrClosed) {
		t.Errorf("Addrs after Close: %v", err)
	}
}
