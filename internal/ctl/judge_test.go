package ctl

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestJudge has a row for each state in the table of docs/operations.md, and for what is none.
func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	a, b := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	quota := func(used, most uint64) []User {
		return []User{{UID: new(uint32(7)), Sockets: Usage{Used: used, Quota: &most}}}
	}
	down := func(text string) PeerInfo {
		return PeerInfo{Remote: a, State: "down", Wanted: true, LastError: text, LastErrorAt: ago(2 * time.Second)}
	}
	waits := func(text string) PeerInfo {
		p := down(text)
		p.QueuedMessages, p.OldestUnacked = 3, 5*time.Second
		return p
	}
	turned := func(event, text string) ErrorInfo {
		return ErrorInfo{Event: event, Peer: a, Error: text, Last: ago(time.Minute)}
	}
	owner := &Owner{PID: 12, Name: "app"}
	for name, tc := range map[string]struct {
		f    Facts
		want []string // level check: line | who
	}{
		"well":                          {Facts{Peers: []PeerInfo{{Remote: a, State: "up", LastError: "once", OldestUnacked: 999 * time.Millisecond, UnackedMessages: 9}, {Remote: b, State: "down", LastError: "idle"}}}, nil},
		"connecting for the first time": {Facts{Peers: []PeerInfo{{Remote: a, State: "connecting", Wanted: true, QueuedMessages: 1, Since: ago(time.Millisecond)}}}, nil},
		"reset, and connecting again":   {Facts{Peers: []PeerInfo{{Remote: a, State: "connecting", Wanted: true, LastError: "reset", Since: ago(time.Millisecond)}}}, nil},
		"stopped":                       {Facts{Status: &Status{Engine: EngineInfo{State: "stopped", Late: time.Hour}}}, []string{"error engine: the daemon has stopped | the administrator of this host"}},
		"stuck": {Facts{Status: &Status{Engine: EngineInfo{State: "running", Late: 5 * time.Second}}},
			[]string{"error engine: the engine does not turn, for 5s | the administrator of this host"}},
		"warnings": {Facts{Status: &Status{Warnings: []string{"log: 3 lines were dropped", "drained", "drained"}}},
			[]string{"warn warning: log: 3 lines were dropped | the administrator of this host", "warn warning: drained | the administrator of this host"}},
		"killed": {Facts{Peers: []PeerInfo{waits("connection refused")}},
			[]string{"error peer: messages wait for 10.0.0.2, which cannot be reached: connection refused (2s ago), for 5s | the administrator of 10.0.0.2"}},
		"killed, and a socket asked": {Facts{Peers: []PeerInfo{down("connection refused")}},
			[]string{"warn peer: 10.0.0.2 is wanted and cannot be reached: connection refused (2s ago) | the administrator of 10.0.0.2"}},
		"forbidden here": {Facts{Peers: []PeerInfo{down("not in peers.allow")}},
			[]string{"warn peer: 10.0.0.2 is wanted and cannot be reached: not in peers.allow (2s ago) | the administrator of this host"}},
		"forbidden there": {Facts{Peers: []PeerInfo{down("the peer rejected the connection: code 1")}},
			[]string{"warn peer: 10.0.0.2 is wanted and cannot be reached: the peer rejected the connection: code 1 (2s ago) | the administrator of 10.0.0.2"}},
		"forbids": {Facts{Errors: []ErrorInfo{turned("request rejected", "not in peers.allow")}},
			[]string{"warn refused: 10.0.0.2 was turned away: not in peers.allow (1m0s ago) | the administrator of this host"}},
		"forbade, and it is up": {Facts{Errors: []ErrorInfo{turned("request rejected", "not in peers.allow")}, Peers: []PeerInfo{{Remote: a, State: "up", Since: ago(time.Second)}}}, nil},
		"forbade long ago":      {Facts{Errors: []ErrorInfo{{Event: "request rejected", Peer: a, Last: ago(refusedFor)}}}, nil},
		"TLS mismatch": {Facts{Peers: []PeerInfo{down("TLS: EOF")}, Errors: []ErrorInfo{turned("connection refused: TLS", "begins without TLS"), turned("up", "none")}},
			[]string{"warn peer: 10.0.0.2 is wanted and cannot be reached: TLS: EOF (2s ago) | the administrators of both hosts",
				"warn refused: 10.0.0.2 was turned away: begins without TLS (1m0s ago) | the administrators of both hosts"}},
		"wanted lately": {Facts{Errors: []ErrorInfo{turned("connect failed", "its peers.allow does not name this host"), {Event: "connect failed", Peer: a, Error: "older", Last: ago(2 * time.Minute)}}},
			[]string{"warn peer: 10.0.0.2 was wanted and could not be reached: its peers.allow does not name this host (1m0s ago) | the administrator of 10.0.0.2"}},
		"wanted lately, and still": {Facts{Errors: []ErrorInfo{turned("connect failed", "older")}, Peers: []PeerInfo{down("not in peers.allow")}},
			[]string{"warn peer: 10.0.0.2 is wanted and cannot be reached: not in peers.allow (2s ago) | the administrator of this host"}},
		"wanted lately, and it is up": {Facts{Errors: []ErrorInfo{turned("connect failed", "older")}, Peers: []PeerInfo{{Remote: a, State: "up", Since: ago(time.Second)}}}, nil},
		"wanted long ago":             {Facts{Errors: []ErrorInfo{{Event: "connect failed", Peer: a, Last: ago(refusedFor)}}}, nil},
		"other version": {Facts{Peers: []PeerInfo{down("rejected: the peer's rdsd speaks extension version 1, this one 2")}},
			[]string{"warn peer: 10.0.0.2 is wanted and cannot be reached: rejected: the peer's rdsd speaks extension version 1, this one 2 (2s ago) | the administrators of both hosts"}},
		"nothing is heard while it is connected to": {Facts{Peers: []PeerInfo{{Remote: a, State: "connecting", Since: ago(3 * time.Second)}}},
			[]string{"warn peer: 10.0.0.2 is wanted and cannot be reached: no answer | the administrator of 10.0.0.2"}},
		"black hole": {Facts{Peers: []PeerInfo{{Remote: a, State: "up", UnackedMessages: 1, OldestUnacked: time.Second}}},
			[]string{"warn unacked: 10.0.0.2 does not ack, for 1s | the daemon of 10.0.0.2, or the network"}},
		"black hole for long, in two lanes": {Facts{Peers: []PeerInfo{{Remote: a, State: "up", UnackedMessages: 1, OldestUnacked: time.Second}, {Remote: a, Lane: 1, State: "up", UnackedMessages: 1, OldestUnacked: LateAfter}}},
			[]string{"error unacked: 10.0.0.2 does not ack, for 10s | the daemon of 10.0.0.2, or the network"}},
		"no turn": {Facts{Peers: []PeerInfo{{Remote: a, State: "up", QueuedMessages: 1, OldestUnacked: 2 * time.Second}}},
			[]string{"warn unacked: messages to 10.0.0.2 wait to be sent, for 2s | whoever rdsctl backlog names"}},
		"large packets": {Facts{Peers: []PeerInfo{{Remote: a, State: "up", MaxSegment: 536}}},
			[]string{"error path: large packets do not pass on the way to 10.0.0.2: its connection has TCP segments of at most 536 bytes | the administrator of the network"}},
		"sender waits": {Facts{Congested: []CongestedInfo{{Where: "peer", Addr: a, Port: 5, Senders: 1}}, Peers: []PeerInfo{{Remote: a, State: "up", QueuedMessages: 1, OldestUnacked: time.Minute}}},
			[]string{"warn receiver: senders here wait for 10.0.0.2:5, which is full | the process that has bound 10.0.0.2:5"}},
		"full receiver": {Facts{Status: &Status{Counts: Counts{CongestedPorts: 1}}, Congested: []CongestedInfo{{Where: "here", Addr: b, Port: 5, Owner: owner, Since: ago(time.Minute)}}},
			[]string{"warn reader: 10.0.0.3:5 is full: app[12] does not read, for 1m0s | app[12]"}},
		"full receiver of another user": {Facts{Status: &Status{Counts: Counts{CongestedPorts: 1}}},
			[]string{"warn reader: a port here is full: its process does not read | the process that has bound it"}},
		"stopped process": {Facts{Backlog: []BacklogInfo{{Addr: b, Port: 5, Owner: *owner, Oldest: LateAfter, WaitsFor: WaitsForReader}, {Oldest: time.Hour, WaitsFor: WaitsForAck}, {Oldest: LateAfter - 1, WaitsFor: WaitsForReader}}},
			[]string{"warn reader: app[12] does not read 10.0.0.3:5, for 10s | app[12]"}},
		"no room": {Facts{Backlog: []BacklogInfo{{Addr: b, Port: 5, Owner: *owner, Oldest: LateAfter, WaitsFor: WaitsForRoom}, {Addr: b, Port: 5, Owner: *owner, Oldest: LateAfter, WaitsFor: WaitsForQuota}}},
			[]string{"warn quota: messages of app[12] wait: the daemon has as many peers as it can have, for 10s | the administrator of this host",
				"warn quota: messages of app[12] wait: those to other destinations use all of quota.destinations of uid 0, for 10s | the administrator of this host"}},
		"no room in an account": {Facts{Backlog: []BacklogInfo{{Addr: b, Port: 5, Owner: Owner{PID: 12, Name: "app", Account: "pod7"}, Oldest: LateAfter, WaitsFor: WaitsForQuota}}},
			[]string{"warn quota: messages of app[12] wait: those to other destinations use all of quota.destinations of account pod7, for 10s | the administrator of this host"}},
		"quota reached":  {Facts{Status: &Status{Users: quota(9, 10)}}, []string{"warn quota: uid 7 uses nine tenths or more of its quota.sockets of 10 | uid 7, or the administrator of this host"}},
		"quota in reach": {Facts{Status: &Status{Users: quota(8, 10)}}, nil},
		"descriptors": {Facts{Status: &Status{Users: []User{{UID: new(uint32(8)), Unreceived: Usage{Used: 18, Quota: new(uint64(20))}}}}},
			[]string{"error quota: processes of uid 8 leave so many descriptors unreceived that its next processes and buffers are refused | uid 8"}},
		"memory": {Facts{Status: &Status{Memory: Memory{Registered: 95, Limit: 100, Held: 9, HeldLimit: 10}}},
			[]string{"warn memory: nine tenths or more of limits.max_registered_bytes are used | the administrator of this host",
				"warn memory: nine tenths or more of limits.max_held_bytes are used: processes do not read | the processes that do not read"}},
	} {
		if tc.f.Status == nil {
			tc.f.Status = &Status{}
		}
		tc.f.Now = now
		var got []string
		for _, f := range Judge(&tc.f) {
			got = append(got, fmt.Sprintf("%s %s: %s | %s", f.Level, f.Check, f.Line(now), f.Who))
			if f.Do == "" {
				t.Errorf("%s: %s names no command", name, f.Text)
			}
		}
		if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

// TestJudgeMany: many findings of a kind are summed up, and errors come first.
func TestJudgeMany(t *testing.T) {
	f := Facts{Now: time.Now(), Status: &Status{Warnings: []string{"drained"}}}
	for i := range byte(mostOf + 3) {
		f.Peers = append(f.Peers, PeerInfo{Remote: netip.AddrFrom4([4]byte{10, 0, 0, i}), State: "down", QueuedMessages: 1, LastError: "no route"})
	}
	got := Judge(&f)
	if len(got) != mostOf+2 || got[mostOf].Level != LevelError || got[mostOf].Text != "3 more findings as this one: messages wait for 10.0.0.0, which cannot be reached" || got[mostOf+1].Text != "drained" {
		t.Errorf("%+v", got)
	}
}

// TestCauses: what an error says decides who has to act.
func TestCauses(t *testing.T) {
	for text, want := range map[string]string{
		"TLS: tls: failed to verify certificate: x509: certificate has expired or is not yet valid":              there,
		"TLS: the peer does not accept this host's certificate: it has expired, or the peer's clock is wrong":    here,
		"TLS: tls: failed to verify certificate: x509: certificate signed by unknown authority":                  bothHosts,
		"TLS: the peer's certificate is not for its address (IP SAN, or its name of tls.names): x509":            there,
		"the peer has no TLS for our address (its tls.mode, tls.cert)":                                           bothHosts,
		"the peer begins with TLS, which is off here for its address (tls.mode, tls.cert)":                       bothHosts,
		"TLS: the peer does not accept this host's certificate: it is not for this host's address: bad":          bothHosts,
		"the peer takes no more TLS handshakes now":                                                              bothHosts,
		"no more TLS handshakes now: too many want one":                                                          bothHosts,
		"TLS: the peer does not accept this host's certificate: tls.ca there does not have its authority: alert": bothHosts,
	} {
		f := Finding{Error: text}
		f.blame(netip.MustParseAddr("10.0.0.2"))
		if f.Who != strings.ReplaceAll(want, "ADDR", "10.0.0.2") || f.Fix == "" || f.Fix == certFix || strings.Contains(f.Fix, "ADDR") {
			t.Errorf("%s:\n%s | %s, want %s", text, f.Who, f.Fix, want)
		}
	}
}

// TestDrained: the finding of a drain names how it ends, and what waits.
func TestDrained(t *testing.T) {
	got := Judge(&Facts{Status: &Status{Warnings: []string{"drained: senders wait and no socket is bound until rdsctl daemon resume"}}})
	if len(got) != 1 || got[0].Fix == "" || got[0].Do != "rdsctl backlog" {
		t.Errorf("%+v", got)
	}
}
