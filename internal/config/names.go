package config

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"strings"
)

// PeerName is one entry of tls.names: the DNS name that certificates of the hosts at some
// addresses carry instead of the address.
type PeerName struct {
	Net  netip.Prefix
	Name string
}

// String is the entry as it is written in tls.names.
func (n PeerName) String() string {
	if n.Net.IsSingleIP() {
		return n.Net.Addr().String() + " " + n.Name
	}
	return n.Net.String() + " " + n.Name
}

// parseName reads "ADDRESS NAME" or "NETWORK NAME".
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
	if n.Name = strings.ToLower(f[1]); !hostName(n.Name) {
		return n, fmt.Errorf("%q is not a DNS name; no wildcards: of all hosts that have one, each could pose as any other", f[1])
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

// NameOf is the name that a certificate for the host at a has to carry. If it is "", the
// certificate has to carry the address. The first entry of tls.names that covers a decides.
func (t *TLS) NameOf(a netip.Addr) string {
	for _, n := range t.Names {
		if n.Net.Contains(a.Unmap()) {
			return n.Name
		}
	}
	return ""
}

// IsFor returns nil if the certificate is for the host at a, else why it is not.
func (t *TLS) IsFor(cert *x509.Certificate, a netip.Addr) error {
	if name := t.NameOf(a); name != "" {
		return cert.VerifyHostname(name)
	}
	return cert.VerifyHostname(a.String())
}
