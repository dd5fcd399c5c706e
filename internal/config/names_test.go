package config

import (
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestPeerNames(t *testing.T) {
	for _, c := range []struct{ in, out, err string }{
		{"10.0.0.2 Host2.example.org", "10.0.0.2 host2.example.org", ""},
		{"  fd00::/64   a-1 ", "fd00::/64 a-1", ""},
		{"::ffff:10.0.0.2 a", "10.0.0.2 a", ""},
		{"10.42.0.0/16 spiffe://Example.org/ns/db/sa/rdsd", "10.42.0.0/16 spiffe://Example.org/ns/db/sa/rdsd", ""},
		{"10.42.0.0/16 *", "10.42.0.0/16 *", ""},
		{"10.42.0.0/16 spiffe://example.org/*", "", "is not a URI with a host, and without a query or a wildcard"},
		{"10.42.0.0/16 spiffe:///a", "", "is not a URI with a host"},
		{"10.42.0.0/16 spiffe://a/b?c", "", "is not a URI with a host"},
		{"10.42.0.0/16 spiffe://u@a/b", "", "is not a URI with a host"},
		{"10.0.0.2", "", "is not an address or network and a name"},
		{"10.0.0.2 a b", "", "is not an address or network and a name"},
		{"host2 10.0.0.2", "", "is not an IP address"},
		{"10.0.0.1/24 a", "", "bits set beyond its prefix"},
		{"10.0.0.2 *.example.org", "", "no wildcards"},
		{"10.0.0.2 10.0.0.3", "", "is not a DNS name"},
		{"10.0.0.2 a..b", "", "is not a DNS name"},
		{"10.0.0.2 a.", "", "is not a DNS name"},
		{"10.0.0.2 -a", "", "is not a DNS name"},
		{"10.0.0.2 a_b", "", "is not a DNS name"},
		{"10.0.0.2 " + strings.Repeat("a", 64), "", "is not a DNS name"},
	} {
		n, err := parseName(c.in)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || err == nil && n.String() != c.out {
			t.Errorf("%q: %v, %v; want %q, %q", c.in, n, err, c.out, c.err)
		}
	}
}

func TestNameOf(t *testing.T) {
	var tls TLS
	for _, s := range []string{"10.0.0.2 two", "10.0.0.0/24 rack", "fd00::/8 six"} {
		n, err := parseName(s)
		if err != nil {
			t.Fatal(err)
		}
		tls.Names = append(tls.Names, n)
	}
	for addr, want := range map[string]string{"10.0.0.2": "two", "::ffff:10.0.0.2": "two", "10.0.0.3": "rack", "10.0.1.2": "", "fd00::1": "six", "::1": ""} {
		if got, ok := tls.NameOf(netip.MustParseAddr(addr)); got.Name != want || ok != (want != "") {
			t.Errorf("%s: %q, %v, want %q", addr, got, ok, want)
		}
	}
}

func TestIsFor(t *testing.T) {
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	host := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 9)}, DNSNames: []string{"two.test"}}
	pod := &x509.Certificate{URIs: []*url.URL{uri("spiffe://example.org/rdsd")}}
	var tls TLS
	for _, s := range []string{"10.0.0.2 two.test", "10.42.0.0/16 spiffe://example.org/rdsd", "10.43.0.0/16 spiffe://example.org/other", "10.44.0.0/16 *"} {
		n, err := parseName(s)
		if err != nil {
			t.Fatal(err)
		}
		tls.Names = append(tls.Names, n)
	}
	for _, tc := range []struct {
		cert *x509.Certificate
		addr string
		err  string
	}{
		{host, "10.0.0.9", ""},
		{host, "10.0.0.8", "not 10.0.0.8"},
		{host, "10.0.0.2", ""},
		{pod, "10.0.0.2", "not valid for any names"},
		{pod, "10.42.1.2", ""},
		{pod, "10.43.1.2", "is for spiffe://example.org/rdsd, not spiffe://example.org/other"},
		{host, "10.42.1.2", "has no URI, and must have spiffe://example.org/rdsd"},
		{host, "10.44.1.2", ""},
		{pod, "10.45.1.2", "10.45.1.2"},
	} {
		err := tls.IsFor(tc.cert, netip.MustParseAddr(tc.addr))
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %q", tc.addr, err, tc.err)
		}
	}
}
