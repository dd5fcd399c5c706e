package config

import (
	"net/netip"
	"strings"
	"testing"
)

func TestTransportOf(t *testing.T) {
	c := Default()
	for k, v := range map[string]string{"transport": "auto", "tcp.peers": "10.0.0.7/32",
		"transport_rules": "soft peer=10.0.1.0/24,verbs local=10.0.0.2,tcp peer=fd00::/16 local=fd00::1,soft local=127.0.0.1"} {
		if err := c.Set(k, v); err != nil {
			t.Fatal(err)
		}
	}
	c.Listen = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")}
	for _, tc := range []struct {
		local, peer string
		want        Transport
		by          string
	}{
		{"10.0.0.1", "10.0.0.7", TransportTCP, "tcp.peers"},
		{"10.0.0.2", "::ffff:10.0.0.7", TransportTCP, "tcp.peers"},
		{"10.0.0.2", "10.0.1.9", TransportSoft, "rule 1 of transport_rules (soft peer=10.0.1.0/24)"},
		{"10.0.0.2", "10.0.0.9", TransportVerbs, "rule 2 of transport_rules (verbs local=10.0.0.2)"},
		{"10.0.0.1", "10.0.0.9", TransportAuto, "transport = auto"},
		{"fd00::1", "fd00::2", TransportTCP, "rule 3 of transport_rules (tcp local=fd00::1 peer=fd00::/16)"},
		{"fd00::2", "fd00::1", TransportAuto, "transport = auto"},
	} {
		if got, by := c.TransportOf(netip.MustParseAddr(tc.local), netip.MustParseAddr(tc.peer)); got != tc.want || by != tc.by {
			t.Errorf("%s to %s: %s by %s", tc.local, tc.peer, got, by)
		}
	}
	for _, tc := range []struct {
		local string
		t     Transport
		want  bool
	}{
		{"10.0.0.1", TransportSoft, true}, {"10.0.0.1", TransportVerbs, true},
		{"10.0.0.2", TransportSoft, true}, // by the first rule
		{"127.0.0.1", TransportVerbs, false}, {"127.0.0.1", TransportSoft, true},
		{"127.0.0.1", TransportTCP, true}, // by tcp.peers
	} {
		if got := c.MayUse(netip.MustParseAddr(tc.local), tc.t); got != tc.want {
			t.Errorf("%s may use %s: %v", tc.local, tc.t, got)
		}
	}
	if !c.Needs(TransportVerbs) {
		t.Error("10.0.0.1 does not need verbs")
	}
	c.TCP.Peers = nil
	if c.Needs(TransportTCP) {
		t.Error("a rule for an address that the daemon does not have needs RDS/TCP")
	}
}

func TestTransportRuleErrors(t *testing.T) {
	for rule, want := range map[string]string{
		"":                            "an empty rule",
		"local=10.0.0.1":              "a rule begins with auto, soft, verbs or tcp",
		"iwarp peer=10.0.0.1":         "a rule begins with auto, soft, verbs or tcp",
		"soft 10.0.0.1":               `"10.0.0.1" is not of the form key=value`,
		"soft port=4":                 "port= is nothing a rule knows, there are local, peer",
		"soft peer=x":                 "peer=x: ",
		"soft peer=10.0.0.1/33":       "peer=10.0.0.1/33: ",
		"soft peer=1.2.3.4 peer=::1":  "peer= is given twice",
		"soft local=10.0.0.1 peer=::": "local and peer are of two families",
	} {
		if _, err := parseTransportRule(rule); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", rule, err, want)
		}
	}
}
