package librds

import (
	"testing"

	"github.com/rdsd/rdsd/internal/test/rdsdtest"
)

// TestUpgrade: C programs whose daemon is replaced again and again notice nothing: no call
// fails, nothing is lost or comes twice, and calls that wait go on.
func TestUpgrade(t *testing.T) {
	built(t, "") // before anything is replaced
	d := rdsdtest.Start(t)
	for _, name := range []string{"threads", "signals", "adopt", "wake", "borrow"} {
		t.Run(name, func(t *testing.T) {
			d.Under(t, 3, func() { finish(t, program(t, "", name, d.Socket, d.Addr.String())) })
		})
	}
}
