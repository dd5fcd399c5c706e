package afrds

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"
)

// Lengths of struct sockaddr_in and sockaddr_in6, and of an address family.
const (
	sockaddr4Len = 16
	sockaddr6Len = 28
	familyLen    = 2
)

var (
	host    = binary.NativeEndian
	network = binary.BigEndian
)

// address is a decoded sockaddr.
type address struct {
	family uint16
	ip     netip.Addr // without zone; IPv4-mapped as IPv4
	port   uint16
	scope  uint32
}

func (a *address) addrPort() netip.AddrPort { return netip.AddrPortFrom(a.ip, a.port) }

// needsScope reports whether a is an IPv6 link-local address without a scope.
func (a *address) needsScope() bool { return a.ip.IsLinkLocalUnicast() && a.ip.Is6() && a.scope == 0 }

// parse decodes the address of the family in b. EINVAL: too few bytes. other is the
// errno for another family.
func parse(b []byte, other syscall.Errno) (a address, err error) {
	if len(b) < familyLen {
		return a, syscall.EINVAL
	}
	a.family = host.Uint16(b)
	switch a.family {
	case syscall.AF_INET:
		if len(b) < sockaddr4Len {
			return a, syscall.EINVAL
		}
		parse4(b, &a)
	case syscall.AF_INET6:
		if len(b) < sockaddr6Len {
			return a, syscall.EINVAL
		}
		parse6(b, &a)
	default:
		return a, other
	}
	return a, nil
}

func parse4(b []byte, a *address) {
	a.port = network.Uint16(b[2:])
	a.ip = netip.AddrFrom4([4]byte(b[4:]))
}

func parse6(b []byte, a *address) {
	a.port = network.Uint16(b[2:])
	a.ip = netip.AddrFrom16([16]byte(b[8:])).Unmap()
	a.scope = host.Uint32(b[24:])
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// unicast reports whether a socket can have the address ip.
func unicast(ip netip.Addr) bool {
	return ip.IsValid() && !ip.IsUnspecified() && !ip.IsMulticast() && ip != broadcast
}

// Sockaddr encodes ap in the form that the calls of this package take and return:
// struct sockaddr_in, 16 bytes, or for IPv6 struct sockaddr_in6, 28 bytes. A zone is
// a numeric scope id.
func Sockaddr(ap netip.AddrPort) []byte {
	scope, _ := strconv.ParseUint(ap.Addr().Zone(), 10, 32)
	return encodeSockaddr(netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), uint32(scope))
}

// encodeSockaddr encodes ap, IPv4 as sockaddr_in.
func encodeSockaddr(ap netip.AddrPort, scope uint32) []byte {
	if ip := ap.Addr(); ip.Is4() {
		a4 := ip.As4()
		b := host.AppendUint16(nil, syscall.AF_INET)
		b = network.AppendUint16(b, ap.Port())
		b = append(b, a4[:]...)
		return append(b, make([]byte, 8)...)
	}
	a16 := ap.Addr().As16()
	b := host.AppendUint16(nil, syscall.AF_INET6)
	b = network.AppendUint16(b, ap.Port())
	b = append(b, 0, 0, 0, 0) // flow information
	b = append(b, a16[:]...)
	return host.AppendUint32(b, scope)
}

// ParseSockaddr decodes what Sockaddr encodes. EINVAL: b is too short. EAFNOSUPPORT:
// the address is neither IPv4 nor IPv6.
func ParseSockaddr(b []byte) (netip.AddrPort, error) {
	a, err := parse(b, syscall.EAFNOSUPPORT)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if a.scope != 0 {
		a.ip = a.ip.WithZone(strconv.FormatUint(uint64(a.scope), 10))
	}
	return a.addrPort(), nil
}
