package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/rds"
)

func TestBind(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		c, other := h.open(), h.open()
		first := h.bind(c, 4000)
		for _, tc := range []struct {
			name string
			c    *rds.Client
			at   addrPort
			want error
		}{
			{"foreign", c, netip.MustParseAddrPort("192.0.2.1:4000"), syscall.EADDRNOTAVAIL},
			{"of no daemon", c, netip.AddrPortFrom(newAddress(t), 4000), syscall.EADDRNOTAVAIL},
			{"in use by another process's socket", other, h.at(4000), syscall.EADDRINUSE},
			{"twice", c, h.at(4000), syscall.EADDRINUSE},
			{"port 1", c, h.at(1), syscall.EINVAL},
			{"multicast", c, netip.MustParseAddrPort("224.0.0.1:4000"), syscall.EINVAL},
			{"broadcast", c, netip.MustParseAddrPort("255.255.255.255:4000"), syscall.EINVAL},
		} {
			s, err := tc.c.Bind(tc.at)
			if s != nil || !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
			}
			if err != nil && !strings.Contains(err.Error(), tc.at.String()) {
				t.Errorf("%s: %q does not name the address", tc.name, err)
			}
			if tc.want == syscall.EADDRNOTAVAIL && !strings.Contains(fmt.Sprint(err), "listens on ["+h.addr().String()+"]") {
				t.Errorf("%s: %v does not name those of the daemon", tc.name, err)
			}
		}
		// The unspecified address is the daemon's one address.
		if s, err := c.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 4000)); s != nil || !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), h.at(4000).String()) {
			t.Errorf("unspecified, in use: %v", err)
		}
		s, err := c.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 4001))
		if err != nil || s.LocalAddrPort() != h.at(4001) {
			t.Fatalf("unspecified: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		// The port is free for everybody as soon as Close returns.
		for range 100 {
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			first = h.bind(other, 4000)
			c, other = other, c
		}
	})
}

func TestMessageTooLong(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		a := newAudit()
		src, dst := hosts[0].bind(hosts[0].open(), 0), hosts[1].bind(hosts[1].open(), 0)
		to := dst.LocalAddrPort()
		for _, tc := range []struct {
			sndbuf, size int
			ok           bool
		}{
			{1000, 1001, false}, {1000, 1000, true}, {4 << 20, rds.MaxMessage + 1, false}, {4 << 20, rds.MaxMessage, true},
		} {
			if err := src.SetSndBuf(tc.sndbuf); err != nil {
				t.Fatal(err)
			}
			var err error
			if tc.ok {
				err = a.send(src, to, make([]byte, tc.size))
			} else if _, err = src.SendTo(make([]byte, tc.size), to); !errors.Is(err, rds.ErrMessageTooLong) || !errors.Is(err, syscall.EMSGSIZE) {
				t.Errorf("%d bytes with a buffer of %d: %v", tc.size, tc.sndbuf, err)
			}
			if tc.ok && err != nil {
				t.Errorf("%d bytes with a buffer of %d: %v", tc.size, tc.sndbuf, err)
			}
		}
		done := make(chan struct{})
		go func() { a.take(dst); close(done) }()
		a.all(t, src)
		dst.Close()
		<-done
	})
}
