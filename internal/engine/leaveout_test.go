//go:build mutant

package engine

import (
	"regexp"
	"testing"

	"github.com/rdsd/rdsd/internal/handover/leaveout"
)

// TestEachValueMatters: whatever value of the state of an engine is left out, a scenario of
// TestGoesOn notices, or the next engine does not take the state.
func TestEachValueMatters(t *testing.T) {
	leaveout.Each(t, leaveout.Check{Run: TestGoesOn, Tests: "^TestGoesOn$", Of: regexp.MustCompile(""), Except: exceptions})
}

// exceptions are the lines that write what no scenario has to notice, and why.
var exceptions = map[string]string{}
