//go:build !failpoints

package failpoint

import "testing"

func TestOff(t *testing.T) {
	t.Setenv("RDSD_FAIL", "listen:1")
	for _, name := range Names() {
		if err := Hit(name); err != nil {
			t.Error(err)
		}
	}
}
