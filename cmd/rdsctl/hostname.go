package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/hosts"
)

// address is the address that a verb's ADDR means, an IP address or a host's name. If the
// status is not exitOK, the error was printed.
func (a *app) address(ctx context.Context, o *options, verb, s string) (netip.Addr, int) {
	addr, err := a.lookup(ctx, o, s)
	if err == nil {
		return addr, exitOK
	}
	fmt.Fprintf(a.stderr, "rdsctl: %s: %s\n", verb, printable(err.Error()))
	if errors.Is(err, hosts.ErrName) {
		return addr, exitUsage
	}
	return addr, exitNotFound
}

// lookup asks the system's resolver for the address of host. If host has several, only
// those of the daemon's address family count.
func (a *app) lookup(ctx context.Context, o *options, host string) (netip.Addr, error) {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	addr, err := hosts.Lookup(limited, a.names(), "ip", host)
	if !errors.Is(err, hosts.ErrSeveral) {
		return addr, err
	}
	_, r, statusErr := a.once(ctx, o, ctl.Request{Kind: ctl.KindStatus})
	if statusErr != nil {
		return addr, err
	}
	family := ""
	for _, l := range r.Status.Listen {
		is := "ip6"
		if l.Addr().Is4() {
			is = "ip4"
		}
		if family != "" && family != is {
			return addr, err
		}
		family = is
	}
	if family == "" {
		return addr, err
	}
	return hosts.Lookup(limited, a.names(), family, host)
}

func (a *app) names() hosts.Resolver {
	if a.resolver != nil {
		return a.resolver
	}
	return net.DefaultResolver
}

// addrPort is the address and port that HOST or HOST:PORT means. Without a port it is port.
// "" gives the zero value.
func (a *app) addrPort(ctx context.Context, o *options, s string, port uint16) (netip.AddrPort, error) {
	if s == "" {
		return netip.AddrPort{}, nil
	}
	host := s
	if _, err := netip.ParseAddr(s); err != nil {
		if h, p, err := net.SplitHostPort(s); err == nil {
			n, err := strconv.ParseUint(p, 10, 16)
			if err != nil {
				return netip.AddrPort{}, usagef("%q: %q is no port", s, p)
			}
			host, port = h, uint16(n)
		}
	}
	addr, err := a.lookup(ctx, o, host)
	if errors.Is(err, hosts.ErrName) {
		return netip.AddrPort{}, usagef("%q is neither an address or name nor ADDR:PORT", s)
	}
	return netip.AddrPortFrom(addr, port), err
}
