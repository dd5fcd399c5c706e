package config

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// PeerName is one entry of tls.names: what certificates of the hosts at some addresses carry
// instead of the address.
type PeerName struct {
	Net  netip.Prefix
	Name string // a DNS name, a URI, or AnyName
}

// AnyName stands for every certificate of the authorities in tls.ca.
const AnyName = "*"

// IsDNS reports whether the entry is a DNS name, which crypto/tls can check by itself.
func (n PeerName) IsDNS() bool { return n.Name != AnyName && !strings.Contains(n.Name, "://") }

// String is the entry as it is written in tls.names.
func (n PeerName) String() string {
	if n.Net.IsSingleIP() {
		return n.Net.Addr().String() + " " + n.Name
	}
	return n.Net.String() + " " + n.Name
}

// parseName reads "ADDRESS NAME" or "NETWORK NAME". NAME is a DNS name, a URI or "*".
func parseName(s string) (n PeerName, err error) {
	f := strings.Fields(s)
	if len(f) != 2 {
		return n, fmt.Errorf(`%q is not an address or network and a name, as in "10.0.0.2 host2.example.org"`, s)
	}
	if strings.Contains(f[0], "/") {
		n.Net, err = parsePrefix(f[0])
	} else {
		var a netip.Addr
		if a, err = parseAddr(f[0]); err == nil {
			n.Net = netip.PrefixFrom(a, a.BitLen())
		}
	}
	if err != nil {
		return n, err
	}
	switch {
	case f[1] == AnyName:
		n.Name = AnyName
	case strings.Contains(f[1], "://"):
		u, err := url.Parse(f[1])
		if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.String() != f[1] || strings.Contains(f[1], "*") {
			return n, fmt.Errorf("%q is not a URI with a host, and without a query or a wildcard, as in spiffe://example.org/rdsd", f[1])
		}
		n.Name = f[1]
	default:
		if n.Name = strings.ToLower(f[1]); !hostName(n.Name) {
			return n, fmt.Errorf("%q is not a DNS name, a URI or *; no wildcards in names: of all hosts that have one, each could pose as any other", f[1])
		}
	}
	return n, nil
}

// hostName reports whether s is a DNS name: labels of letters, digits and hyphens. An
// address is not one, because it would be compared with the certificate's IP SANs.
func hostName(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

// NameOf is the entry that says what a certificate for the host at a has to carry. If ok is
// false, the certificate has to carry the address. The first entry of tls.names that covers
// a decides.
func (t *TLS) NameOf(a netip.Addr) (n PeerName, ok bool) {
	for _, n := range t.Names {
		if n.Net.Contains(a.Unmap()) {
			return n, true
		}
	}
	return n, false
}

// IsFor returns nil if the certificate is for the host at a, else why it is not.
func (t *TLS) IsFor(cert *x509.Certificate, a netip.Addr) error {
	n, ok := t.NameOf(a)
	switch {
	case !ok:
		return cert.VerifyHostname(a.String())
	case n.Name == AnyName:
		return nil
	case n.IsDNS():
		return cert.VerifyHostname(n.Name)
	}
	var has []string
	for _, u := range cert.URIs {
		if u.String() == n.Name {
			return nil
		}
		has = append(has, u.String())
	}
	if has == nil {
		return fmt.Errorf("x509: the certificate has no URI, and must have %s", n.Name)
	}
	return fmt.Errorf("x509: the certificate is for %s, not %s", strings.Join(has, ", "), n.Name)
}
