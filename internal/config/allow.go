package config

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/hosts"
)

// Allowed is one entry of peers.allow: a network, or a host's name.
type Allowed struct {
	Net  netip.Prefix // not valid for a name
	Name string       // "" for a network
	// Addrs are the addresses that Name had when Resolve was called: at most one of each
	// family in which the daemon listens.
	Addrs []netip.Addr
	Why   error // why Name has no address
}

// String is the entry as it is written in peers.allow.
func (a Allowed) String() string {
	switch {
	case a.Name != "":
		return a.Name
	case a.Net.IsSingleIP():
		return a.Net.Addr().String()
	}
	return a.Net.String()
}

// contains reports whether the host at addr is allowed by a.
func (a *Allowed) contains(addr netip.Addr) bool {
	return a.Net.IsValid() && a.Net.Contains(addr) || slices.Contains(a.Addrs, addr)
}

// isLiteral reports whether whoever wrote a meant addr, even if addr belongs to this host: a
// is the address itself, or a network of loopback addresses only.
func (a *Allowed) isLiteral(addr netip.Addr) bool {
	loopback := a.Net.Addr().IsLoopback() && a.Net.Bits() >= 8
	return a.Net.Contains(addr) && (a.Net.IsSingleIP() || loopback)
}

// Permission is what peers.allow says about an address.
type Permission uint8

const (
	// Forbidden means that no entry allows the address.
	Forbidden Permission = iota
	// Elsewhere means that a network or a name allows the address, unless it belongs to this
	// host: then every process of the host can connect from it.
	Elsewhere
	// Permitted means that the address is allowed even if it belongs to this host.
	Permitted
)

// Peer returns whether a may be a peer. peers.allow decides. An address of this host is
// allowed only by an entry that names it literally, because every process of the host can
// connect from there, also one that the control socket's permissions keep out. In addition, a
// daemon that listens only on loopback permits every loopback address.
func (c *Config) Peer(a netip.Addr) Permission {
	a = a.Unmap()
	switch {
	case a.IsUnspecified() || a.IsMulticast():
		return Forbidden
	case slices.ContainsFunc(c.Peers.Allow, func(p Allowed) bool { return p.isLiteral(a) }):
		return Permitted
	case a.IsLoopback():
		if !slices.ContainsFunc(c.Listen, func(l netip.Addr) bool { return !l.IsLoopback() }) {
			return Permitted
		}
	case slices.ContainsFunc(c.Peers.Allow, func(p Allowed) bool { return p.contains(a) }):
		return Elsewhere
	}
	return Forbidden
}

// parseAllowed reads a network, an address or a name. It looks nothing up.
func parseAllowed(s string) (a Allowed, err error) {
	if strings.Contains(s, "/") {
		a.Net, err = parsePrefix(s)
		return a, err
	}
	if addr, err := parseAddr(s); err == nil {
		a.Net = netip.PrefixFrom(addr, addr.BitLen())
		return a, checkScope(a.Net)
	} else if strings.Contains(s, "%") { // a zone: no name has that
		return a, err
	}
	if !hosts.IsName(s) {
		return a, fmt.Errorf("%q is not a network in CIDR form, an address or a host's name", s)
	}
	a.Name = strings.ToLower(strings.TrimSuffix(s, "."))
	return a, nil
}

// Resolve looks up the names in peers.allow. A name may have one address in each family in
// which the daemon listens. The error has a line for each name that has none or several.
// Such a name allows nobody. Resolve blocks until all names are looked up or ctx ends.
func (c *Config) Resolve(ctx context.Context, r hosts.Resolver) error {
	var families []string
	for _, l := range c.Listen {
		family := "ip6"
		if l.Is4() {
			family = "ip4"
		}
		if !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	allow := slices.Clone(c.Peers.Allow)
	var errs []error
	for i := range allow {
		a := &allow[i]
		if a.Name == "" {
			continue
		}
		a.Addrs, a.Why = nil, nil
		for _, family := range families {
			addr, err := hosts.Lookup(ctx, r, family, a.Name)
			if err == nil {
				a.Addrs = append(a.Addrs, addr)
			} else if a.Why == nil || errors.Is(a.Why, hosts.ErrUnknown) {
				a.Why = err
			}
		}
		if errors.Is(a.Why, hosts.ErrUnknown) && len(a.Addrs) > 0 { // no address of the other family
			a.Why = nil
		}
		if a.Why != nil {
			a.Addrs = nil
			errs = append(errs, fmt.Errorf("peers.allow: %w", a.Why))
		}
	}
	c.Peers.Allow = allow
	return errors.Join(errs...)
}

// Names lists the names in peers.allow with what they stand for, as in "hostb (10.0.0.2)".
func (c *Config) Names() (out []string) {
	for _, a := range c.Peers.Allow {
		if a.Name == "" {
			continue
		}
		var addrs []string
		for _, addr := range a.Addrs {
			addrs = append(addrs, addr.String())
		}
		if addrs == nil {
			addrs = []string{"no address"}
		}
		out = append(out, fmt.Sprintf("%s (%s)", a.Name, strings.Join(addrs, ", ")))
	}
	return out
}
