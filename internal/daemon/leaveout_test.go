//go:build leaveout

package daemon

import (
	"regexp"
	"testing"

	"github.com/rdsd/rdsd/internal/handover/leaveout"
)

// TestEachValueMatters: whatever value of what a daemon adds to the state of its engine is left
// out, a test notices.
func TestEachValueMatters(t *testing.T) {
	leaveout.Each(t, leaveout.Check{
		Run: func(t *testing.T) {
			t.Run("sessions", TestSessionsHandedOver)
			t.Run("requests", TestRequestsHandedOver)
			t.Run("unread", TestUnreadCountHandedOver)
			t.Run("memory", TestMemoryHandedOver)
			t.Run("listeners", TestListenersHandedOver)
			t.Run("changed", TestListenersChanged)
			t.Run("upgrade", TestUpgradeState)
			t.Run("statistics", TestStatisticsHandedOver)
		},
		Tests: "^(TestSessionsHandedOver|TestRequestsHandedOver|TestUnreadCountHandedOver|TestMemoryHandedOver|TestListenersHandedOver|TestListenersChanged|TestUpgradeState|TestStatisticsHandedOver)$",
		Of:    regexp.MustCompile("^daemon/"), Except: exceptions})
}

// exceptions are the lines that write what no test has to notice, and why.
var exceptions = map[string]string{
	"daemon/listenerstate.go: s.Int(&ls.before, math.MaxInt32)": "createStats is told of it, see TestStatisticsHandedOver",
	"daemon/sessionstate.go: st.Bool(&untold)":                  "no test has a window that was made and not sent",
	"daemon/sessionstate.go: st.Bool(&what.Region)":             "a Release that waits needs another host; TestGoesOn of package engine has one",
}
