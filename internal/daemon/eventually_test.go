package daemon

import (
	"testing"
	"time"
)

// patience is how long a test waits for what has to happen. It only ends a test that would
// hang: a busy machine needs a small part of it.
const patience = 2 * time.Minute

// eventually calls f until it returns nil. The test fails with the last error if f does
// not within patience; what names what is waited for.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}
