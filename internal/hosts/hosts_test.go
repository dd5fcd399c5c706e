package hosts

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
)

// fixed is a resolver with fixed answers.
type fixed map[string][]string

func (f fixed) LookupNetIP(_ context.Context, network, host string) (out []netip.Addr, err error) {
	if host == "broken" {
		return nil, &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
	}
	for _, s := range f[host] {
		a := netip.MustParseAddr(s)
		if is4 := a.Unmap().Is4(); network == "ip" || is4 == (network == "ip4") {
			out = append(out, a)
		}
	}
	if out == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out, nil
}

func TestLookup(t *testing.T) {
	r := fixed{"hostb": {"10.0.0.2"}, "twice": {"::ffff:10.0.0.3", "10.0.0.3"}, "two": {"10.0.0.5", "10.0.0.4"}, "dual": {"10.0.0.6", "fd00::6"}}
	for _, tc := range []struct {
		network, host string
		want          string
		err           error
		text          string
	}{
		{"ip", "10.0.0.1", "10.0.0.1", nil, ""},
		{"ip", "::ffff:10.0.0.1", "10.0.0.1", nil, ""},
		{"ip6", "10.0.0.1", "", nil, `"10.0.0.1" is of another address family than ip6`},
		{"ip", "fe80::1%eth0", "", nil, `"fe80::1%eth0" has a zone: link-local addresses are not supported`},
		{"ip", "hostb", "10.0.0.2", nil, ""},
		{"ip", "twice", "10.0.0.3", nil, ""},
		{"ip", "two", "", ErrSeveral, "two has 2 addresses (10.0.0.4, 10.0.0.5): write the one that is meant"},
		{"ip", "dual", "", ErrSeveral, "dual has 2 addresses (10.0.0.6, fd00::6): write the one that is meant"},
		{"ip6", "dual", "fd00::6", nil, ""},
		{"ip6", "hostb", "", ErrUnknown, "hostb: " + ErrUnknown.Error()},
		{"ip", "nobody", "", ErrUnknown, "nobody: " + ErrUnknown.Error()},
		{"ip", "broken", "", nil, "broken: lookup failed: lookup broken: server misbehaving"},
		{"ip", "10.0.0.300", "", ErrName, `"10.0.0.300" is not a host's name or IP address`},
		{"ip", "a b", "", ErrName, `"a b" is not a host's name or IP address`},
		{"ip", "", "", ErrName, `"" is not a host's name or IP address`},
	} {
		got, err := Lookup(t.Context(), r, tc.network, tc.host)
		switch {
		case tc.text != "":
			if err == nil || err.Error() != tc.text || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("%s %q: %v, want %s", tc.network, tc.host, err, tc.text)
			}
		case err != nil || got.String() != tc.want:
			t.Errorf("%s %q: %v, %v, want %s", tc.network, tc.host, got, err, tc.want)
		}
	}
}
