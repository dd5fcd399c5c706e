package rds

import (
	"net"
	"net/netip"
)

// Addr is the address of an RDS socket as a net.Addr.
type Addr struct {
	netip.AddrPort
}

var _ net.Addr = (*Addr)(nil)

// Network returns "rds".
func (a *Addr) Network() string { return "rds" }

// addrPortOf returns the address in a net.Addr of a type that WriteTo accepts.
func addrPortOf(a net.Addr) (netip.AddrPort, error) {
	switch a := a.(type) {
	case *Addr:
		if a != nil {
			return a.AddrPort, nil
		}
	case *net.UDPAddr:
		if a != nil {
			return a.AddrPort(), nil
		}
	case nil:
	default:
		return netip.AddrPort{}, invalid("address of type %T, want *rds.Addr or *net.UDPAddr", a)
	}
	return netip.AddrPort{}, invalid("no address")
}

// normal returns ap in the form that the tables use: an IPv4 address as IPv4, not
// mapped to IPv6.
func normal(ap netip.AddrPort) netip.AddrPort {
	if ap.Addr().Is4In6() {
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return ap
}

var broadcast4 = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// checkAddr returns why a cannot be the address of a host, or nil.
func checkAddr(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return invalid("no address")
	case a.IsUnspecified():
		return invalid("unspecified address %v", a)
	case a.IsMulticast():
		return invalid("multicast address %v", a)
	case a == broadcast4:
		return invalid("broadcast address %v", a)
	case a.Zone() != "":
		return invalid("address %v: scoped addresses are not supported", a)
	}
	return nil
}
