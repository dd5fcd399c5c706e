//go:build !failpoints

package failpoint

// Hit returns the failure that was asked for at the place called name. In this build it
// always returns nil.
func Hit(name string) error { return nil }
