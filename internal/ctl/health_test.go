package ctl

import (
	"net/netip"
	"testing"
	"time"
)

func TestConcerns(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	secure := TLS{Mode: "on", Subject: "CN=x"}
	for name, tc := range map[string]struct {
		s     Status
		peers []PeerInfo
		want  []string
	}{
		"well":    {Status{TLS: secure}, []PeerInfo{{Remote: a, State: "up", LastError: "once"}, {Remote: b, State: "down"}}, nil},
		"plain":   {Status{TLS: TLS{Mode: "off"}}, nil, nil}, // the daemon warns of it, or was told not to (tls.warn)
		"stopped": {Status{TLS: secure, Engine: EngineInfo{State: "stopped", Late: time.Hour}}, nil, []string{"error: the daemon has stopped"}},
		"stuck":   {Status{TLS: secure, Engine: EngineInfo{State: "running", Late: 5 * time.Second}}, nil, []string{"error: the engine has not turned for 5s"}},
		"all": {Status{TLS: TLS{Mode: "off"}, Counts: Counts{CongestedPorts: 2}, Warnings: []string{"drained", "drained"}},
			[]PeerInfo{{Remote: a, State: "down", LastError: "refused"}, {Remote: b, State: "connecting", QueuedMessages: 1}, {Remote: a, State: "error", UnackedMessages: 1}},
			[]string{"error: 2 peers are down, and messages wait, 10.0.0.3 first", "warn: peer 10.0.0.2 is down", "warn: 2 ports are congested: the process does not read",
				"warn: drained"}},
	} {
		got := Concerns(&tc.s, tc.peers)
		if len(got) != len(tc.want) {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
			continue
		}
		for i, c := range got {
			if c.Level+": "+c.Text != tc.want[i] {
				t.Errorf("%s: %q, want %q", name, c.Level+": "+c.Text, tc.want[i])
			}
		}
	}
}
