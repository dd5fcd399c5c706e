// Package hosts finds the one address of a host's name, through the system's resolver.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/lists"
)

// Resolver looks names up. net.DefaultResolver is the system's.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// The errors of Lookup wrap one of these.
var (
	ErrName    = errors.New("not a host's name or IP address")
	ErrUnknown = errors.New("the system's resolver has no address for it; write the address, or add the name to DNS or /etc/hosts")
	ErrSeveral = errors.New("write the one that is meant")
)

// Lookup returns the address of host, which is an IP address or a name. An address is
// returned as it is, without a lookup. network is "ip", "ip4" or "ip6". A name must have
// exactly one address of that kind. An error names the host. Lookup blocks until the
// resolver has answered or ctx ends.
func Lookup(ctx context.Context, r Resolver, network, host string) (netip.Addr, error) {
	var none netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap()
		switch {
		case a.Zone() != "":
			return none, fmt.Errorf("%q has a zone: link-local addresses are not supported", host)
		case network == "ip4" && !a.Is4(), network == "ip6" && a.Is4():
			return none, fmt.Errorf("%q is of another address family than %s", host, network)
		}
		return a, nil
	}
	if !IsName(host) {
		return none, fmt.Errorf("%q is %w", host, ErrName)
	}
	found, err := r.LookupNetIP(ctx, network, host)
	if err != nil {
		if d, ok := errors.AsType[*net.DNSError](err); ok && d.IsNotFound {
			return none, fmt.Errorf("%s: %w", host, ErrUnknown)
		}
		return none, fmt.Errorf("%s: lookup failed: %w", host, err)
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	lists.Sort(found, netip.Addr.Compare)
	found = slices.Compact(found)
	switch len(found) {
	case 0:
		return none, fmt.Errorf("%s: %w", host, ErrUnknown)
	case 1:
		return found[0], nil
	}
	var list []string
	for _, a := range found {
		list = append(list, a.String())
	}
	return none, fmt.Errorf("%s has %d addresses (%s): %w", host, len(list), strings.Join(list, ", "), ErrSeveral)
}

// IsName reports whether s can be a host's name: labels of letters, digits, hyphens and
// underscores, of which the last is not a number. So an address with a typing error is no
// name.
func IsName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(strings.ToLower(s), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
		last = label
	}
	return strings.Trim(last, "0123456789") != ""
}
