package main

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// answers is a resolver. A name without answers is not known.
type answers map[string][]string

var known = answers{"hostb": {"127.0.0.2"}, "dual": {"127.0.0.2", "fd00::2"}, "two": {"127.0.0.2", "127.0.0.3"}}

func (r answers) LookupNetIP(_ context.Context, network, host string) (out []netip.Addr, err error) {
	for _, s := range r[host] {
		if a := netip.MustParseAddr(s); network == "ip" || a.Is4() == (network == "ip4") {
			out = append(out, a)
		}
	}
	if out == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out, nil
}

// Verbs with an ADDR take a host's name. Of several addresses, those of the daemon's
// family count.
func TestNamesOfHosts(t *testing.T) {
	for _, tc := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"ping hostb -c 1", exitOK, "reply from 127.0.0.2: seq 1, 30µs", ""},
		{"ping dual -c 1", exitOK, "reply from 127.0.0.2: seq 1, 30µs", ""},
		{"ping two -c 1", exitNotFound, "", "rdsctl: ping: two has 2 addresses (127.0.0.2, 127.0.0.3): write the one that is meant\n"},
		{"ping nobody -c 1", exitNotFound, "", "rdsctl: ping: nobody: the system's resolver has no address for it; write the address, or add the name to DNS or /etc/hosts\n"},
		{"ping 10.0.0.300 -c 1", exitUsage, "", "rdsctl: ping: \"10.0.0.300\" is not a host's name or IP address\n"},
		{"peer reset -path 1 hostb", exitOK, "127.0.0.2: 101 connection(s) reset\n", ""},
		{"peer reset hostb", exitOK, "127.0.0.2: 2 connection(s) reset\n", ""},
		{"peer drain hostb -wait 0", exitOK, "", ""},
		{"check peer hostb", int(checkOK), "peer ok: lane 0 is up\n", ""},
		{"check peer nobody", int(checkUnknown), "peer unknown: nobody: the system's resolver", ""},
		{"check socket hostb:4000", int(checkCritical), "socket critical: 127.0.0.2:4000 is not bound\n", ""},
	} {
		b := &backend{pings: []time.Duration{30 * time.Microsecond}}
		code, stdout, stderr := runApp(t, direct{b, true}, strings.Fields(tc.args)...)
		if code != tc.code || !strings.HasPrefix(stdout, tc.stdout) || !strings.HasPrefix(stderr, tc.stderr) || tc.stderr == "" && stderr != "" {
			t.Errorf("%s: status %d, %q, %q; want %d, %q, %q", tc.args, code, stdout, stderr, tc.code, tc.stdout, tc.stderr)
		}
	}
}
