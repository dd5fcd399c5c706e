//go:build leaveout

package stats

import (
	"regexp"
	"testing"

	"github.com/rdsd/rdsd/internal/handover/leaveout"
)

// TestEachValueMatters: whatever value of the statistics is left out of the state, a test
// notices.
func TestEachValueMatters(t *testing.T) {
	leaveout.Each(t, leaveout.Check{Run: TestBlockHandedOver, Tests: "^TestBlockHandedOver$", Of: regexp.MustCompile("^stats/")})
}
