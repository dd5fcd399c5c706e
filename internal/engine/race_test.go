//go:build race

package engine

import "testing"

const raceEnabled = true

// oneGoroutine skips a test that repeats a piece of work at each of its steps. The engine has no
// goroutine, so the race detector finds nothing in the repetition.
func oneGoroutine(t *testing.T) {
	t.Helper()
	t.Skip("one goroutine, and the same work at each of its steps: the unit stage does it")
}
