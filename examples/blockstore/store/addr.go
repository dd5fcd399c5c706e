package store

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// UsageError is a command line that cannot be understood.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

// ParseRemote reads ADDRESS[:PORT]; an empty string is byDefault, if valid.
func ParseRemote(s string, byDefault netip.Addr) (netip.AddrPort, error) {
	if s == "" && byDefault.IsValid() {
		return netip.AddrPortFrom(byDefault, DefaultPort), nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap, nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.AddrPort{}, &UsageError{fmt.Sprintf("%q is not ADDRESS[:PORT] (no host names)", s)}
	}
	return netip.AddrPortFrom(a, DefaultPort), nil
}

// LocalFor is the address a copy binds to: what the user said, port 0 (any) if
// not given; else the address this host would use towards server.
func LocalFor(bind string, server netip.AddrPort) (netip.AddrPort, error) {
	if bind != "" {
		if ap, err := netip.ParseAddrPort(bind); err == nil {
			return ap, nil
		}
		a, err := netip.ParseAddr(strings.Trim(bind, "[]"))
		if err != nil {
			return netip.AddrPort{}, &UsageError{fmt.Sprintf("-bind %q is not ADDRESS[:PORT]", bind)}
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
