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

// ParseRemote parses ADDRESS[:PORT]. The default port is DefaultPort. An empty string means
// byDefault, if that is valid.
func ParseRemote(s string, byDefault netip.Addr) (netip.AddrPort, error) {
	if s == "" && byDefault.IsValid() {
		return netip.AddrPortFrom(byDefault, DefaultPort), nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap, nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.AddrPort{}, &UsageError{fmt.Sprintf("%q is not ADDRESS[:PORT] (an IP address; no host names)", s)}
	}
	return netip.AddrPortFrom(a, DefaultPort), nil
}

// LocalFor returns the address that a client binds to. That is bind, with port 0 (any free
// port) if bind has none. If bind is empty, it is the address that routes to server.
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
	// To connect a UDP socket sends nothing. It only looks up the route.
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("no local address for %v (use -bind): %w", server, err)
	}
	defer c.Close()
	return netip.AddrPortFrom(c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), 0), nil
}
