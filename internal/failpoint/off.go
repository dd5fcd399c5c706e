//go:build !failpoints

package failpoint

import "time"

// Hit returns the failure that was asked for at the place called name. In this build it
// always returns nil.
func Hit(name string) error { return nil }

// Limit returns a time limit that a test may want to be shorter. In this build it always
// returns d.
func Limit(d time.Duration) time.Duration { return d }
