package ctl_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
)

// TestJudgedEvents: the events that findings are made of have the names that the engine and its connections
// give them.
func TestJudgedEvents(t *testing.T) {
	now := time.Now()
	for event, want := range map[string]string{conn.EventConnectFailed: ctl.FindPeer, conn.EventRequestRejected: ctl.FindRefused,
		engine.EventRefused: ctl.FindRefused, engine.EventRefusedTCP: ctl.FindRefused, conn.EventNarrow: "", engine.EventFellBack: ""} {
		check := ""
		for _, f := range ctl.Judge(&ctl.Facts{Now: now, Status: &ctl.Status{}, Errors: []ctl.ErrorInfo{{Event: event, Peer: netip.MustParseAddr("10.0.0.2"), Last: now}}}) {
			check += f.Check
		}
		if check != want {
			t.Errorf("%q is judged as %q, want %q", event, check, want)
		}
	}
}
