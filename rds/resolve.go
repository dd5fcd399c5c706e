package rds

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/rdsd/rdsd/internal/hosts"
)

// Resolve returns the address and port that "HOST:PORT" means. HOST is an IP address or a
// name, which the system's resolver looks up. network is "ip", "ip4" or "ip6". A name has
// to have exactly one address of that kind: a host with addresses of both kinds needs
// "ip4" or "ip6". The error says whether the name has no address or several. Resolve blocks
// until the resolver has answered or ctx ends. No other function of this package looks
// names up.
func Resolve(ctx context.Context, network, hostPort string) (netip.AddrPort, error) {
	switch network {
	case "ip", "ip4", "ip6":
	default:
		return netip.AddrPort{}, fmt.Errorf("%w: resolve: network %q is none of ip, ip4, ip6", ErrInvalid, network)
	}
	host, service, err := net.SplitHostPort(hostPort)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: resolve %q: want HOST:PORT, an IPv6 address in brackets", ErrInvalid, hostPort)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: resolve %q: port %q is not a number from 0 to 65535", ErrInvalid, hostPort, service)
	}
	addr, err := hosts.Lookup(ctx, net.DefaultResolver, network, host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("resolve %w", err)
	}
	return netip.AddrPortFrom(addr, uint16(port)), nil
}
