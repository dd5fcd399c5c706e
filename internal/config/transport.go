package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Transport says what carries the connections to peers.
type Transport string

const (
	TransportAuto  Transport = "auto"  // verbs if the address has an RDMA device, else soft
	TransportSoft  Transport = "soft"  // iWARP over TCP in user space
	TransportVerbs Transport = "verbs" // the RDMA device of the local address
	TransportTCP   Transport = "tcp"   // RDS/TCP
)

// TransportRule is the transport of the connections that match all its parts.
type TransportRule struct {
	Transport   Transport
	Local, Peer netip.Prefix // the zero value matches any address
}

// TransportOf is the transport of the connection from a local address to a peer. by is the
// setting that decides: tcp.peers, the first rule that matches, or transport.
func (c *Config) TransportOf(local, peer netip.Addr) (t Transport, by string) {
	local, peer = local.Unmap(), peer.Unmap()
	if c.tcpPeer(peer) {
		return TransportTCP, "tcp.peers"
	}
	for i := range c.TransportRules {
		if r := &c.TransportRules[i]; within(r.Local, local) && within(r.Peer, peer) {
			return r.Transport, fmt.Sprintf("rule %d of transport_rules (%v)", i+1, r)
		}
	}
	return c.Transport, "transport = " + string(c.Transport)
}

// MayUse reports whether a local address may have peers that t carries. soft and verbs are
// possible with auto, too.
func (c *Config) MayUse(local netip.Addr, t Transport) bool {
	local = local.Unmap()
	is := func(x Transport) bool {
		return x == t || x == TransportAuto && (t == TransportSoft || t == TransportVerbs)
	}
	if t == TransportTCP && len(c.TCP.Peers) > 0 {
		return true
	}
	for i := range c.TransportRules {
		r := &c.TransportRules[i]
		if !within(r.Local, local) {
			continue
		}
		if is(r.Transport) {
			return true
		}
		if !r.Peer.IsValid() {
			return false // this rule decides for all peers, so later rules and the default never do
		}
	}
	return is(c.Transport)
}

// Needs reports whether any address of the daemon may use t.
func (c *Config) Needs(t Transport) bool {
	return slices.ContainsFunc(c.Listen, func(a netip.Addr) bool { return c.MayUse(a, t) })
}

func (c *Config) tcpPeer(a netip.Addr) bool {
	return slices.ContainsFunc(c.TCP.Peers, func(p netip.Prefix) bool { return p.Contains(a) })
}

// KernelPeer reports whether the host at a may be a Linux kernel that is reached over an
// RDMA device.
func (c *Config) KernelPeer(a netip.Addr) bool {
	return slices.ContainsFunc(c.Peers.Kernel, func(p netip.Prefix) bool { return p.Contains(a) })
}

// TCPPeer reports whether the connection from a local address to the host at a uses
// RDS/TCP.
func (c *Config) TCPPeer(local, a netip.Addr) bool {
	t, _ := c.TransportOf(local, a)
	return t == TransportTCP
}

// TCPFrom reports whether the host at a may connect to any address of the daemon by
// RDS/TCP.
func (c *Config) TCPFrom(a netip.Addr) bool {
	return slices.ContainsFunc(c.Listen, func(l netip.Addr) bool { return c.TCPPeer(l, a) })
}

func within(p netip.Prefix, a netip.Addr) bool { return !p.IsValid() || p.Contains(a) }

func parseTransportRule(s string) (r TransportRule, err error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return r, errors.New("an empty rule")
	}
	r.Transport = Transport(words[0])
	if !slices.Contains([]Transport{TransportAuto, TransportSoft, TransportVerbs, TransportTCP}, r.Transport) {
		return r, fmt.Errorf("%q: a rule begins with auto, soft, verbs or tcp", s)
	}
	err = eachField(words[1:], func(key, value string) error {
		p := &r.Local
		switch key {
		case "peer":
			p = &r.Peer
		case "local":
		default:
			return fmt.Errorf("%s= is nothing a rule knows, there are local, peer", key)
		}
		*p, err = parseNetwork(key, value)
		return err
	})
	switch {
	case err != nil:
		return r, fmt.Errorf("%q: %w", s, err)
	case r.Local.IsValid() && r.Peer.IsValid() && r.Local.Addr().Is4() != r.Peer.Addr().Is4():
		return r, fmt.Errorf("%q: local and peer are of two families", s)
	}
	return r, nil
}

// parseNetwork reads an address or a network.
func parseNetwork(key, s string) (netip.Prefix, error) {
	if a, err := parseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := parsePrefix(s)
	switch {
	case err != nil:
		return p, fmt.Errorf("%s=%s: %w, nor an address", key, s, err)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%s=%s: write a network of IPv4 as such", key, s)
	}
	return p, nil
}

// String is the rule as it is written in transport_rules.
func (r TransportRule) String() string {
	s := string(r.Transport)
	for _, f := range []struct {
		key string
		p   netip.Prefix
	}{{"local", r.Local}, {"peer", r.Peer}} {
		switch {
		case !f.p.IsValid():
		case f.p.IsSingleIP():
			s += " " + f.key + "=" + f.p.Addr().String()
		default:
			s += " " + f.key + "=" + f.p.String()
		}
	}
	return s
}

// InsistsOnVerbs reports whether a setting allows connections of an address no transport
// but verbs.
func (c *Config) InsistsOnVerbs(a netip.Addr) bool {
	named := c.Transport == TransportVerbs
	for i := range c.TransportRules {
		named = named || c.TransportRules[i].Transport == TransportVerbs && within(c.TransportRules[i].Local, a)
	}
	return named && c.MayUse(a, TransportVerbs)
}
