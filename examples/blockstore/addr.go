package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// parseRemote reads ADDRESS[:PORT]; an empty string is byDefault, if valid.
func parseRemote(s string, byDefault netip.Addr) (netip.AddrPort, error) {
	if s == "" && byDefault.IsValid() {
		return netip.AddrPortFrom(byDefault, defaultPort), nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap, nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.AddrPort{}, &usageError{fmt.Sprintf("%q is not ADDRESS[:PORT] (no host names)", s)}
	}
	return netip.AddrPortFrom(a, defaultPort), nil
}

// localFor is the address a copy binds to: what the user said, port 0 (any) if
// not given; else the address this host would use towards server.
func localFor(bind string, server netip.AddrPort) (netip.AddrPort, error) {
	if bind != "" {
		if ap, err := netip.ParseAddrPort(bind); err == nil {
			return ap, nil
		}
		a, err := netip.ParseAddr(strings.Trim(bind, "[]"))
		if err != nil {
			return netip.AddrPort{}, &usageError{fmt.Sprintf("-bind %q is not ADDRESS[:PORT]", bind)}
		}
		return netip.AddrPortFrom(a, 0), nil
	}
	// Connecting a UDP socket sends nothing; it asks the routing table.
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("no local address for %v (use -bind): %w", server, err)
	}
	defer c.Close()
	return netip.AddrPortFrom(c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), 0), nil
}
