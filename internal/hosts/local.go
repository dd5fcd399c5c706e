package hosts

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// IsLocal reports whether a is an address of this host: in its network namespace, on any
// interface, at this moment. The kernel is asked by calls that wait for no lock of the
// network's configuration and send nothing, so that the engine's thread may call it. An error
// means that the kernel did not say.
func IsLocal(a netip.Addr) (bool, error) {
	switch a = a.Unmap(); {
	case a.IsLoopback():
		return true, nil
	case a.Is4():
		return isLocal4(a)
	}
	return isLocal6(a)
}

// isLocal4 uses that an interface for multicast is named by its address. Unlike bind, this
// does not depend on net.ipv4.ip_nonlocal_bind.
func isLocal4(a netip.Addr) (bool, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(s)
	switch err = unix.SetsockoptInet4Addr(s, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, a.As4()); err {
	case nil:
		return !a.IsUnspecified(), nil // unspecified: no interface
	case unix.EADDRNOTAVAIL:
		return false, nil
	}
	return false, fmt.Errorf("IP_MULTICAST_IF: %w", err)
}

// isLocal6 uses that the source of what goes to an address of this host is that address
// (RFC 6724, rule 1).
func isLocal6(a netip.Addr) (bool, error) {
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(s)
	if err := unix.Connect(s, &unix.SockaddrInet6{Addr: a.As16(), Port: 9}); err != nil {
		return false, nil //nolint:nilerr // no way leads there: not here
	}
	from, err := unix.Getsockname(s)
	if err != nil {
		return false, fmt.Errorf("getsockname: %w", err)
	}
	in6, ok := from.(*unix.SockaddrInet6)
	return ok && in6.Addr == a.As16(), nil
}
