//go:build !race

package engine

import "testing"

const raceEnabled = false

func oneGoroutine(*testing.T) {}
