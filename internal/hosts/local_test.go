package hosts

import (
	"net"
	"net/netip"
	"testing"
)

// TestIsLocal: all addresses of this host are local, whatever interface has them. Others are
// not.
func TestIsLocal(t *testing.T) {
	want := map[string]bool{"127.0.0.1": true, "127.9.8.7": true, "::ffff:127.0.0.1": true, "::1": true,
		"0.0.0.0": false, "192.0.2.77": false, "198.51.100.1": false, "2001:db8::77": false, "fe80::1234:5678:9abc:def1": false}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			t.Fatal(err)
		}
		if !p.Addr().IsLinkLocalUnicast() {
			want[p.Addr().String()] = true
		}
	}
	for s, want := range want {
		if got, err := IsLocal(netip.MustParseAddr(s)); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", s, got, err, want)
		}
	}
}
