package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/ctl"
)

// On a terminal, peers has a total, no blank columns, and lines that fit 120 columns.
func TestPeersOnTerminal(t *testing.T) {
	text.DisableColors()
	defer text.EnableColors()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	peers := []ctl.PeerInfo{
		{Local: netip.MustParseAddr("10.20.30.101"), Remote: netip.MustParseAddr("10.20.30.102"), State: "connecting", Since: now.Add(-time.Minute),
			QueuedMessages: 12345, Resets: 3, NextTxSeq: 1 << 63, LastError: "soft: connect 10.20.30.101:0 to 10.20.30.102:18634: dial tcp: connection refused"},
		{Local: netip.MustParseAddr("10.20.30.101"), Remote: netip.MustParseAddr("10.20.30.103"), State: "up", Since: now.Add(-49 * time.Hour), Transport: "soft",
			TLS: "TLS_AES_128_GCM_SHA256", QueuedMessages: 1, UnackedMessages: 1234567, Lost: 17},
	}
	show := func(o *options, shown terminal) string {
		p, err := peerList(func() time.Time { return now }).plan(o)
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		p.show(&app{stdout: &out, stderr: &errs, shown: shown}, o, nil, &ctl.Response{Peers: peers})
		return out.String()
	}
	want := `LOCAL         REMOTE        STATE       FOR   TRANSPORT  TLS  QUEUED  UNACKED  RESETS  LOST  LAST-ERROR
10.20.30.101  10.20.30.102  connecting  1m0s  none       -     12345        0       3     0  soft: connect 10.20.30.101…
10.20.30.101  10.20.30.103  up          2d1h  soft       yes       1  1234567       0    17  none
total                                                          12346  1234567       3    17
`
	o := newOptions()
	got := show(o, terminal{width: 120})
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.SplitSeq(got, "\n") {
		if n := text.StringWidth(line); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if pipe := show(o, terminal{}); !strings.Contains(pipe, "LANE") || strings.Contains(pipe, "total") || !strings.Contains(pipe, peers[0].LastError) {
		t.Errorf("in a pipe:\n%s", pipe)
	}
	o.output = wide
	if all := show(o, terminal{width: 120}); !strings.Contains(all, "NEXT-TX") || !strings.Contains(all, "AES_128_GCM_SHA256") || !strings.Contains(all, peers[0].LastError) {
		t.Errorf("wide:\n%s", all)
	}
}

// Colours are for terminals only.
func TestColours(t *testing.T) {
	text.EnableColors()
	for _, tc := range []struct {
		shown   terminal
		colours bool
	}{{terminal{}, false}, {terminal{width: 80}, true}} {
		var out, errs bytes.Buffer
		a := &app{stdout: &out, stderr: &errs, shown: tc.shown}
		p, err := peerList(time.Now).plan(newOptions())
		if err != nil {
			t.Fatal(err)
		}
		p.show(a, newOptions(), nil, &ctl.Response{Peers: []ctl.PeerInfo{{State: "up"}}})
		if got := strings.Contains(out.String(), "\x1b["); got != tc.colours {
			t.Errorf("%+v: colours %v in %q", tc.shown, got, out.String())
		}
	}
}
