package config

import (
	"net/netip"
	"strings"
	"testing"
)

func TestPeerNames(t *testing.T) {
	for _, c := range []struct{ in, out, err string }{
		{"10.0.0.2 Host2.example.org", "10.0.0.2 host2.example.org", ""},
		{"  fd00::/64   a-1 ", "fd00::/64 a-1", ""},
		{"::ffff:10.0.0.2 a", "10.0.0.2 a", ""},
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
		if got := tls.NameOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}
